"""Marks of the tests that name a fault or a promise, read from the files without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.repository import ROOT

TESTS = ROOT / "tests"
MARKS = ("fault", "shows")


@cache
def marked() -> dict[str, set[str]]:
    """Return ids by test, named `tests/…/test_x.py::test_y`; parameters' marks count too."""
    found: dict[str, set[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        found |= {f"{file.relative_to(ROOT)}::{name}": ids for name, ids in _of_file(file) if ids}
    return found


@cache
def seldom() -> set[str]:
    """Return the tests that `make test` leaves out."""
    found = set()
    for file in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        whole = any(_is_mark(node, "long") for part in _module_marks(tree) for node in ast.walk(part))
        for test in _tests(tree):
            # A mark within `parametrize` is one of some parameters: the others run each time.
            if whole or any(_is_mark(part, "long") for part in test.decorator_list):
                found.add(f"{file.relative_to(ROOT)}::{test.name}")
    return found


def _of_file(file: Path) -> Iterator[tuple[str, set[str]]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    shared = {each for part in _module_marks(tree) for each in _ids(part)}
    for test in _tests(tree):
        yield test.name, shared | {each for part in test.decorator_list for each in _ids(part)}


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def _module_marks(tree: ast.Module) -> Iterator[ast.expr]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            yield node.value


def _ids(part: ast.expr) -> Iterator[str]:
    for node in ast.walk(part):
        if isinstance(node, ast.Call) and any(_is_mark(node.func, name) for name in MARKS):
            for argument in node.args:
                assert isinstance(argument, ast.Constant), "an id is a plain string"
                yield str(argument.value)


def _is_mark(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == f"pytest.mark.{name}"
