"""Running processes and open ports."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from local.stack.process_identity import descendants, identity


def family(pid: int) -> dict[int, str]:
    """Return what tells a process and all below it from later ones with the same ids."""
    known = {each: identity(each) for each in (pid, *descendants(pid))}
    return {each: known_as for each, known_as in known.items() if known_as}


def still_running(recorded: dict[int, str]) -> list[int]:
    """Return the recorded processes that run."""
    return [pid for pid, known_as in recorded.items() if identity(pid) == known_as]


def mentioning(text: str) -> list[int]:
    """Return the processes with `text` in their arguments or environment, as far as those can be read."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            described = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if text.encode() in described and identity(int(folder.name)):
                found.append(int(folder.name))
    return found


def listening(urls: Iterable[str]) -> list[str]:
    """Return the URLs whose port is open."""
    return [url for url in urls if _answers(url)]


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2).close()
    except ConnectionRefusedError:
        return False
    return True
