"""Costs of reading the library: files run by a job, modules with one importer, lines, idioms.

`python -m tests.perf.reading` takes one job through the real functions under `Trace` and prints all figures.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

LIBRARY: Final = ("layers/indexmill/python", "functions")
"""Import roots, relative to the repository: a file's path below them is its module's name."""
_FUNCTION_CODE: Final = 0x1  # inspect.CO_OPTIMIZED: set for functions, not for module and class bodies


def modules(root: Path) -> dict[str, Path]:
    """Return the modules below the import roots by name, without `__init__`."""
    found = {}
    for folder in LIBRARY:
        for path in sorted((root / folder).rglob("*.py")):
            name = ".".join(path.relative_to(root / folder).with_suffix("").parts)
            if path.name != "__init__.py":
                found[name] = path
    return found


def importers(root: Path) -> dict[str, set[str]]:
    """Return, for each module of the library, the modules that import it; lazy imports count.

    The functions' entry points import and are not imported, so they are not keys.
    """
    known = modules(root)
    found: dict[str, set[str]] = {name: set() for name in known if name.startswith("indexmill.")}
    for name, path in known.items():
        for imported in _imported(ast.parse(path.read_text(encoding="utf-8")), found):
            if imported != name:
                found[imported].add(name)
    return found


def _imported(tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    names = set(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                # `from package import module` and `from module import name` look the same.
                yield from {f"{node.module}.{each.name}", node.module} & names


def with_one_importer(root: Path) -> list[str]:
    """Return the modules that exactly one other module imports."""
    return sorted(name for name, users in importers(root).items() if len(users) == 1)


def lines(root: Path) -> dict[str, int]:
    """Return the lines of the library's Python and SQL files by suffix."""
    folders = {folder.split("/")[0] for folder in LIBRARY}
    return {
        suffix: sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for folder in sorted(folders)
            for path in (root / folder).rglob(f"*{suffix}")
        )
        for suffix in (".py", ".sql")
    }


class Trace:
    """Records, in order of first use, the library's files in which a function's code runs.

    Module and class bodies do not count: what an import executes is not what a reader follows. A thread
    records only when it was started inside `installed`.
    """

    def __init__(self, root: Path) -> None:
        self._folders = tuple(str((root / folder).resolve()) + "/" for folder in LIBRARY)
        self._root = root.resolve()
        self._seen: dict[str, bool] = {}
        self._leg: dict[str, None] | None = None
        self.legs: dict[str, dict[str, None]] = {}
        """Files by leg, each in order; a leg that is entered again is continued."""

    @contextmanager
    def installed(self) -> Iterator[Trace]:
        """Trace this thread, and threads that start from now on."""
        collects = gc.isenabled()
        gc.disable()  # Python 3.11.2, Debian's, crashes when it collects while calls are profiled
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            if collects:
                gc.enable()

    @contextmanager
    def leg(self, name: str) -> Iterator[None]:
        """Record under `name`; legs nest, and outside of every leg nothing is recorded."""
        outer, self._leg = self._leg, self.legs.setdefault(name, {})
        try:
            yield
        finally:
            self._leg = outer

    def add(self, leg: str, files: Iterable[str]) -> None:
        """Add files that no function runs in: entry points, SQL."""
        self.legs.setdefault(leg, {}).update(dict.fromkeys(files))

    def files(self, *legs: str) -> list[str]:
        """Return the distinct files of these legs, all legs by default, in order of first use."""
        chosen = legs or tuple(self.legs)
        return list(dict.fromkeys(name for leg in chosen for name in self.legs.get(leg, {})))

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or self._leg is None or not frame.f_code.co_flags & _FUNCTION_CODE:
            return
        path = frame.f_code.co_filename
        if path not in self._seen:
            self._seen[path] = path.startswith(self._folders)
        if self._seen[path]:
            self._leg[str(Path(path).relative_to(self._root))] = None


def executed_sql(root: Path, statements: Iterable[str]) -> list[str]:
    """Return the library's .sql files of which a named statement, or a fragment it includes, was executed."""
    ran = {_normal(statement) for statement in statements}
    return [
        path.relative_to(root).as_posix()
        for folder in LIBRARY
        for path in sorted((root / folder).rglob("*.sql"))
        if any(pattern.search(text) for pattern in _patterns(path) for text in ran)
    ]


def _patterns(path: Path) -> Iterator[re.Pattern[str]]:
    """Yield what the text of each statement and fragment looks like once its includes are filled in."""
    for text in re.split(r"^-- (?:name|fragment): .*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[
        1:
    ]:
        literal = [re.escape(part) for part in re.split(r"\{\{\w+\}\}", _normal(text))]
        yield re.compile(".*".join(literal))


def _normal(statement: str) -> str:
    """Return a statement without comments, the final semicolon and differences of white space."""
    return " ".join(re.sub(r"--.*", "", statement).split()).rstrip("; ")
