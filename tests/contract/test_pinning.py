"""No statement of a function pins its session to one connection of RDS Proxy: the texts, as they are in code.

`tests/integration/test_pooler.py` and runs with `--pooler` read what is really sent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from indexmill.embedding.adapters.pgvector import statements
from indexmill.orchestrator.store import rows
from tests.support.pinning import pins
from tests.support.repository import ROOT, inside, python_files

LAYER = ROOT / "layers" / "indexmill" / "python"


def deployed() -> list[Path]:
    """Return the Python files of the functions and their layer."""
    return [path for path in python_files() if inside(path).startswith(("functions/", "layers/"))]


def string_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is not a docstring; what an f-string computes is `{}`."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(texts)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings | parts:
            if isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.lineno, node.value


def driver_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of calls that have the driver send a pinning statement."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        values = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if name == "cursor" and (node.args or "name" in values):
            yield node.lineno, "server-side cursor"
        if name in ("execute", "executemany") and values.get("prepare", "None") != "None":
            yield node.lineno, "prepared statement"
        if values.get("prepare_threshold", "None") != "None":
            yield node.lineno, "prepare_threshold"
        if name == "connect" and "prepare_threshold" not in values and "psycopg" in ast.unparse(node.func):
            yield node.lineno, "connect without prepare_threshold=None"
        if name in ("add_notify_handler", "notifies", "ServerCursor"):
            yield node.lineno, name


def test_calls_of_the_driver_that_pin_are_found() -> None:
    source = (
        "c.cursor('name'); c.execute(q, prepare=True); psycopg.connect(u)\n"
        "psycopg.connect(u, prepare_threshold=5); c.notifies()\n"
        "c.cursor(row_factory=f); psycopg.connect(u, prepare_threshold=None)\n"
    )
    assert [line for line, _ in driver_calls(ast.parse(source))] == [1, 1, 1, 2, 2]


def test_no_named_statement_pins() -> None:
    texts = [*statements.SQL.items(), *rows.SQL.items()]
    assert len(texts) == sum(path.read_text().count("-- name: ") for path in LAYER.rglob("*.sql"))
    assert {name: found for name, text in texts if (found := pins(text))} == {}


def test_no_text_in_code_pins() -> None:
    found = [
        (f"{inside(path)}:{line}", why)
        for path in deployed()
        for line, text in string_texts(ast.parse(path.read_text(encoding="utf-8")))
        if (why := pins(text))
    ]
    assert found == []


def test_no_call_of_the_driver_pins() -> None:
    found = [
        f"{inside(path)}:{line} {name}"
        for path in deployed()
        for line, name in driver_calls(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
