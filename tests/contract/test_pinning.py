"""No statement of a function pins its session to one connection of RDS Proxy.

What pins is listed in https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html. Calls of
stored functions do not, whatever is in them; COPY is not on the list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.embedding.adapters.pgvector import statements
from indexmill.orchestrator.adapters.postgres import reads
from tests.support.repository import ROOT, inside, python_files

LAYER = ROOT / "layers" / "indexmill" / "python"
LONGEST_BYTES = 16 * 1024
PINNING = {
    "SET, RESET, DISCARD": r"(?:\A|;)\s*(?:re)?set\s|(?:\A|;)\s*discard\s",
    "set_config": r"\bset_config\s*\(",
    "prepared statement": r"(?:\A|;)\s*(?:prepare|execute|deallocate)\s",
    "cursor": r"(?:\A|;)\s*declare\s",
    "temporary object": r"\b(?:create|into)\s+(?:(?:global|local)\s+)?temp(?:orary)?\b|\bpg_temp\.",
    "sequence": r"\b(?:nextval|setval|currval|lastval)\s*\(",
    "session lock": r"\bpg_(?:try_)?advisory_(?:lock|unlock)",
    "notification channel": r"(?:\A|;)\s*(?:un)?listen\s",
    "library": r"(?:\A|;)\s*load\s",
}
EXAMPLES = [
    *("SET lock_timeout = 1", "SELECT 1; SET LOCAL enable_sort = off", "RESET ALL", "discard all"),
    *("SELECT set_config('a.b', %s, true)", "PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE ALL"),
    *("DECLARE c CURSOR FOR SELECT 1", "CREATE TEMP TABLE t (i INT)", "SELECT 1 INTO TEMPORARY t"),
    *("SELECT nextval('s')", "SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock(1, 2)"),
    *("SELECT pg_advisory_unlock_all()", "LISTEN channel", "LOAD 'vector'"),
]
HARMLESS = [
    "UPDATE jobs SET status = 'done' WHERE id = %s",
    "SELECT next_generation() AS generation",
    "SELECT pg_try_advisory_xact_lock(1, 2)",
    "COPY chunks FROM STDIN (FORMAT binary)",
]


def pinned(text: str) -> list[str]:
    """Return the names of what pins a session in an SQL text."""
    found = [name for name, pattern in PINNING.items() if re.search(pattern, text, re.IGNORECASE)]
    return found + ["long text"] * (len(text.encode(errors="replace")) > LONGEST_BYTES)


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


@pytest.mark.parametrize("text", EXAMPLES)
def test_what_pins_is_found(text: str) -> None:
    assert pinned(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_does_not_pin_is_not(text: str) -> None:
    assert pinned(text) == []


def test_calls_of_the_driver_that_pin_are_found() -> None:
    source = (
        "c.cursor('name'); c.execute(q, prepare=True); psycopg.connect(u)\n"
        "psycopg.connect(u, prepare_threshold=5); c.notifies()\n"
        "c.cursor(row_factory=f); psycopg.connect(u, prepare_threshold=None)\n"
    )
    assert [line for line, _ in driver_calls(ast.parse(source))] == [1, 1, 1, 2, 2]


def test_no_named_statement_pins() -> None:
    assert {path.name for path in LAYER.rglob("*.sql")} == {"index.sql", "jobs.sql", "sweep.sql"}
    texts = statements.SQL | reads.SQL
    assert {name: found for name, text in texts.items() if (found := pinned(text))} == {}


def test_no_text_in_code_pins() -> None:
    found = [
        (f"{inside(path)}:{line}", names)
        for path in deployed()
        for line, text in string_texts(ast.parse(path.read_text(encoding="utf-8")))
        if (names := pinned(text))
    ]
    assert found == []


def test_no_call_of_the_driver_pins() -> None:
    found = [
        f"{inside(path)}:{line} {name}"
        for path in deployed()
        for line, name in driver_calls(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
