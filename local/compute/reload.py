"""Detection of changed code by modification times, shared by functions that use the same folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from local.template.spec import FunctionSpec

_INTERVAL_S = 0.1
_SKIPPED = {"__pycache__", "node_modules"}

_Stamp = tuple[int, int]


class WatchedTree:
    """One folder and everything below it, without hidden folders and bytecode.

    The listing is kept, and a folder is listed again only when its own time changed, so a check costs a
    `stat` per file.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._folders: dict[str, tuple[_Stamp, list[str], list[str]]] = {}
        self._files: dict[str, _Stamp] = {}
        self._checked_at = -1.0
        self.version = 0
        self.current_version()

    def current_version(self) -> int:
        """Return the version of the tree, which grows with each change; checked at most once in 100 ms."""
        now = time.monotonic()
        if self._checked_at < 0 or now - self._checked_at >= _INTERVAL_S:
            files: dict[str, _Stamp] = {}
            self._scan(self._root, files)
            self._checked_at = now
            if files != self._files:
                self._files = files
                self.version += 1
        return self.version

    def _scan(self, folder: str, files: dict[str, _Stamp]) -> None:
        stamp = _stamp(folder)
        if stamp is None:
            self._folders.pop(folder, None)
            return
        known = self._folders.get(folder)
        if known is None or known[0] != stamp:
            known = (stamp, *_listing(folder))
            self._folders[folder] = known
        for path in known[1]:
            found = _stamp(path)
            if found is not None:
                files[path] = found
        for path in known[2]:
            self._scan(path, files)


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path object per file would double the cost of a check
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _listing(folder: str) -> tuple[list[str], list[str]]:
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in _SKIPPED or entry.name.startswith(".") or entry.name.endswith(".pyc"):
                continue
            (folders if entry.is_dir() else files).append(entry.path)
    return files, folders


class CodeWatch:
    """Trees of one function: its code folder, and the named packages of its layers."""

    def __init__(self, spec: FunctionSpec, packages: Iterable[str], known: dict[Path, WatchedTree]) -> None:
        roots = [spec.code_dir]
        roots += [layer / "python" / package for layer in spec.layer_dirs for package in packages]
        for root in roots:
            if root not in known:
                known[root] = WatchedTree(root)
        self._trees = tuple(known[root] for root in roots)

    def version(self) -> int:
        """Return a version that grows whenever code changed."""
        return sum(tree.current_version() for tree in self._trees)
