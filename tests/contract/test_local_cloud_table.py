"""docs/local-cloud.md names a test for whatever it says of the local cloud; each of them exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.repository import ROOT

DOCUMENT = ROOT / "docs" / "local-cloud.md"
KINDS = ("same", "different", "not there")
SAME_AT_LEAST = 60
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_LINK = re.compile(r"\[[^\]]+\]\[([\w-]+)\]")
_TARGET = re.compile(r"^\[([\w-]+)\]: (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One line of a table of behaviour."""

    behaviour: str
    kind: str
    test: str
    page: str


@cache
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@cache
def rows() -> list[Row]:
    """Return the lines of all tables whose second column is a kind."""
    found = []
    for line in text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[1] in KINDS:
            found.append(Row(*cells))
    return found


@cache
def functions(path: str) -> set[str]:
    """Return the names of the test functions of a file; none when there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.behaviour[:60])
def test_the_test_of_each_row_exists(row: Row) -> None:
    named = _TEST.findall(row.test)
    assert named or row.kind == "not there", "only what is not there can do without a test"
    missing = [f"{path}::{name}" for path, name in named if name not in functions(path)]
    assert missing == []


def test_no_line_of_a_table_is_misread() -> None:
    lines = [line for line in text().splitlines() if line.startswith("| ") and "::test_" in line]
    assert len(lines) == sum(1 for row in rows() if "::test_" in row.test)


def test_enough_is_the_same() -> None:
    kinds = Counter(row.kind for row in rows())
    assert kinds["same"] >= SAME_AT_LEAST
    assert set(kinds) == set(KINDS)


def test_no_behaviour_is_listed_twice() -> None:
    assert [name for name, count in Counter(row.behaviour for row in rows()).items() if count > 1] == []


def test_every_page_is_one_of_awss() -> None:
    targets = dict(_TARGET.findall(text()))
    used = {name for row in rows() for name in _LINK.findall(row.page)}
    assert used == set(targets)
    assert [url for url in targets.values() if not url.startswith("https://docs.aws.amazon.com/")] == []
    assert [row.behaviour for row in rows() if row.kind == "same" and not _LINK.search(row.page)] == []
