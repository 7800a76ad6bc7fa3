"""Effects of the load of modules that have no place before a fork: `python -m … FOLDER PACKAGE`.

Prints a line `MODULE EFFECT` for each reading of the environment, each file opened outside of the folder, and
each socket, process and thread, by the module of the package that was being loaded. Effects of other packages
while they are loaded themselves are not listed.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from local.compute.supervisor import modules_in

_PLUGINS: Final = "pydantic/plugin/_loader.py"
"""Each class of a model looks whether pydantic has plugins."""
_EVENTS: Final = ("socket.__new__", "subprocess.Popen", "os.fork", "os.posix_spawn")


class Effects:
    """Effects found so far."""

    def __init__(self, folder: Path, package: str) -> None:
        self._folder, self._package = folder, package
        self.found: list[str] = []

    def watch(self) -> None:
        """Note effects from now on."""
        environ: Any = type(os.environ)
        self._read, self._start = environ.__getitem__, threading.Thread.start
        environ.__getitem__ = lambda found, name: self._reads(found, name)  # noqa: PLW0108 - no bound method
        threading.Thread.start = lambda thread: self._starts(thread)  # type: ignore[method-assign]  # noqa: PLW0108
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not str(arguments[0]).startswith(str(self._folder)):
            self._note(f"opens {arguments[0]}")
        elif event in _EVENTS:
            self._note(event)

    def _reads(self, environ: Any, name: str) -> Any:
        self._note(f"reads {name}")
        return self._read(environ, name)

    def _starts(self, thread: threading.Thread) -> None:
        self._note("starts a thread")
        self._start(thread)

    def _note(self, effect: str) -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib") or file.endswith(_PLUGINS):
                return
            frame = frame.f_back
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] == self._package:
            self.found.append(f"{name} {effect}")


def main() -> None:
    """Load every module of the package."""
    folder, package = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.path.insert(0, str(folder))
    effects = Effects(folder, package)
    effects.watch()
    for name in modules_in([str(folder / package)]):
        import_module(name)
    sys.stdout.write("".join(f"{line}\n" for line in effects.found))


if __name__ == "__main__":
    main()
