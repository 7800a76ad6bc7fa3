"""Bounds of modules and functions; below them, cohesion decides."""

from __future__ import annotations

import ast
from functools import cache

from tests.support.repository import ROOT, inside, python_files

MODULE_LINES = 400
FUNCTION_LINES = 60
ENTRY_POINT_LINES = 12


@cache
def function_lengths() -> dict[str, int]:
    """Return the lines of every function from its `def` to its end."""
    return {
        f"{inside(path)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in python_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_no_module_is_long() -> None:
    lines = {inside(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {name: count for name, count in lines.items() if count > MODULE_LINES} == {}


def test_entry_points_build_one_handler_and_nothing_else() -> None:
    for path in sorted((ROOT / "functions").glob("*/*.py")):
        source = path.read_text(encoding="utf-8")
        *_, last = ast.parse(source).body
        # Else the runtime logs what it raises with the queries of URLs.
        assert ast.unparse(last).startswith("handler = entry_point(build_"), path
        assert len(source.splitlines()) <= ENTRY_POINT_LINES, path


def test_no_function_is_long() -> None:
    lengths = function_lengths()
    assert {name: count for name, count in lengths.items() if count > FUNCTION_LINES} == {}
