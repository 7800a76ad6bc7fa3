"""docs/faults.md names each fault, what is expected under it, and the tests that show it; so do the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.fault_marks import marked, seldom
from tests.support.repository import ROOT

DOCUMENT = ROOT / "docs" / "faults.md"
LAST = 78
REQUIRED = [
    f"F{number}"
    for low, high in ((1, 27), (29, 34), (60, 64), (66, 72), (75, 75))
    for number in range(low, high + 1)
]
_ROW = re.compile(r"^\| (?P<id>F\d+) \| (?P<fault>[^|]+) \| (?P<expected>[^|]+) \| (?P<tests>[^|]+) \|$")
_TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
_NOT_YET = re.compile(r"not automated: \S.{10,}")


@dataclass(frozen=True)
class Row:
    """One fault."""

    id: str
    tests: tuple[str, ...]
    text: str
    """The last column."""


@cache
def rows() -> dict[str, Row]:
    found = [_ROW.match(line) for line in DOCUMENT.read_text(encoding="utf-8").splitlines()]
    made = [Row(row["id"], tuple(_TEST.findall(row["tests"])), row["tests"]) for row in found if row]
    assert len({row.id for row in made}) == len(made), "a fault has one row"
    return {row.id: row for row in made}


def showing(fault: str) -> list[str]:
    return sorted(test for test, ids in marked().items() if fault in ids)


def test_every_fault_has_a_row_in_order() -> None:
    assert list(rows()) == [f"F{number}" for number in range(1, LAST + 1)]


@pytest.mark.parametrize("fault", REQUIRED)
def test_a_required_fault_is_shown_by_a_test_of_every_run(fault: str) -> None:
    assert [test for test in showing(fault) if test not in seldom()] != []


@pytest.mark.parametrize("fault", [f"F{number}" for number in range(1, LAST + 1)])
def test_a_row_names_exactly_the_tests_that_are_marked_with_its_fault(fault: str) -> None:
    assert sorted(rows()[fault].tests) == showing(fault)


def test_what_no_test_shows_says_why() -> None:
    assert [row.id for row in rows().values() if not row.tests and not _NOT_YET.search(row.text)] == []
    assert [row.id for row in rows().values() if row.tests and _NOT_YET.search(row.text)] == []


def test_no_mark_names_an_unknown_fault() -> None:
    assert sorted({fault for ids in marked().values() for fault in ids} - set(rows())) == []


def test_no_line_of_the_table_is_misread() -> None:
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if "::test_" in line]
    assert len([line for line in lines if _ROW.match(line)]) == sum(
        1 for line in lines if line.startswith("| F")
    )
    assert sum(len(row.tests) for row in rows().values()) == sum(len(ids) for ids in marked().values())


def test_marks_of_parameters_and_of_modules_are_found() -> None:
    found = marked()
    assert "F24" in found["tests/faults/test_injection.py::test_a_fault_happens_and_the_job_survives_it"]
    assert found[
        "tests/integration/test_migrating_while_running.py::test_a_migration_that_fails_leaves_nothing"
    ] == {"F70"}
    assert "tests/faults/test_soak.py::test_nothing_is_lost_stuck_wrong_or_twice" in seldom()
    assert "tests/faults/test_model.py::test_many_orders_lose_no_job_in_memory" in seldom()
