"""A copy of the tree, edited by a test as by a developer."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.repository import ROOT

LIBRARY = "layers/indexmill/python/indexmill"


class Tree:
    """A copy of this tree that can be edited."""

    def __init__(self, folder: Path, *more: str) -> None:
        """Copy what runs, and `more` files and folders."""
        self.folder = folder
        self.edited: set[str] = set()
        """Files that were added or changed."""
        for name in ("layers/indexmill", "functions", "sql", "tools", "template.yaml", *more):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, folder / name)

    def add(self, path: str, text: str) -> None:
        """Add a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        self.edited.add(path)

    def edit(self, path: str, *changes: tuple[str, str]) -> None:
        """Replace texts of a file, each of which it has."""
        text = (self.folder / path).read_text(encoding="utf-8")
        for before, after in changes:
            assert before in text, f"{path} has no {before!r}"
            text = text.replace(before, after)
        (self.folder / path).write_text(text, encoding="utf-8")
        self.edited.add(path)
