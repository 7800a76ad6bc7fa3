"""Check of the execution environment (file descriptors, disk), and its end when it is exhausted.

What leaks descriptors or fills the disk stays broken for as long as Lambda keeps the environment warm, and a
warm one gets the next messages too. So one that can open or write nothing more ends: the next has both again.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from typing import NoReturn, Protocol

_PROBE = b"\0" * 4096


class Health(Protocol):
    """Resources of the execution environment: file descriptors, disk."""

    def failing(self) -> str | None:
        """Return what there is no more of, as an errno's name, or None."""
        ...

    def end(self) -> None:
        """End the environment at once; its messages are redelivered to another one."""
        ...


class SystemHealth:
    """This process and its disk."""

    def __init__(self) -> None:
        """Find the folder for temporary files, which takes a file too."""
        self._folder = tempfile.gettempdir()

    def failing(self) -> str | None:
        """Open a file and write to it."""
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(_PROBE)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "unknown")
        return None

    def end(self) -> NoReturn:
        """End the process without clean-up, which might need the exhausted resource."""
        sys.stdout.flush()
        os._exit(1)
