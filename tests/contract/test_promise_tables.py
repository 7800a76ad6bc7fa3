"""docs/faults.md and docs/security.md list each fault and rule with the tests that are marked with its id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.promise_marks import marked, seldom
from tests.support.repository import ROOT

DOCUMENTS = {"F": ROOT / "docs" / "faults.md", "S": ROOT / "docs" / "security.md"}
LAST = {"F": 79, "S": 40}
ALL = [f"{kind}{number}" for kind, last in LAST.items() for number in range(1, last + 1)]
REQUIRED = [
    f"{kind}{number}"
    for kind, low, high in (
        *(("F", 1, 27), ("F", 29, 34), ("F", 58, 58), ("F", 60, 72), ("F", 75, 75)),
        *(("S", 10, 11), ("S", 13, 16), ("S", 18, 18), ("S", 30, 33), ("S", 39, 39)),
    )
    for number in range(low, high + 1)
]
BAD_INPUT = [f"B{number}" for low, high in ((1, 30), (63, 75), (82, 90)) for number in range(low, high + 1)]
"""What an endpoint answers to bad input; the Scraper's own and signed callbacks are not among these."""
# What is listed in no table: features and requirements.
OTHERS = re.compile(r"[RPXBLC]\d{1,3}")
_ROW = re.compile(r"^\| (?P<id>[FS]\d+) \|(?: [^|]+ \|)+ (?P<tests>[^|]+) \|$")
_TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
_NOT_YET = re.compile(r"not automated: \S.{10,}")


@dataclass(frozen=True)
class Row:
    """One fault, or one rule."""

    id: str
    tests: tuple[str, ...]
    text: str
    """The last column."""


def lines() -> list[str]:
    return [line for path in DOCUMENTS.values() for line in path.read_text(encoding="utf-8").splitlines()]


@cache
def rows() -> dict[str, Row]:
    found = [_ROW.match(line) for line in lines()]
    made = [Row(row["id"], tuple(_TEST.findall(row["tests"])), row["tests"]) for row in found if row]
    assert len({row.id for row in made}) == len(made), "an id has one row"
    return {row.id: row for row in made}


def showing(promise: str) -> list[str]:
    return sorted(test for test, ids in marked().items() if promise in ids)


def test_every_fault_and_rule_has_a_row_in_order() -> None:
    assert list(rows()) == ALL


@pytest.mark.parametrize("promise", REQUIRED)
def test_what_is_required_is_shown_by_a_test_of_every_run(promise: str) -> None:
    assert [test for test in showing(promise) if test not in seldom()] != []


@pytest.mark.parametrize("promise", ALL)
def test_a_row_names_exactly_the_tests_that_are_marked_with_its_id(promise: str) -> None:
    # The last column, to be written into the table.
    expected = "<br>".join(f"`{test}`" for test in showing(promise))
    assert sorted(rows()[promise].tests) == showing(promise), expected


@pytest.mark.parametrize("promise", BAD_INPUT)
def test_every_kind_of_bad_input_is_shown_by_a_test_of_every_run(promise: str) -> None:
    assert [test for test in showing(promise) if test not in seldom()] != []


def test_what_no_test_shows_says_why() -> None:
    assert [row.id for row in rows().values() if not row.tests and not _NOT_YET.search(row.text)] == []
    assert [row.id for row in rows().values() if row.tests and _NOT_YET.search(row.text)] == []


def test_no_mark_names_an_unknown_id() -> None:
    named = {each for ids in marked().values() for each in ids} - set(rows())
    assert sorted(each for each in named if not OTHERS.fullmatch(each)) == []


def test_no_line_of_a_table_is_misread() -> None:
    of_tests = [line for line in lines() if "::test_" in line]
    assert all(_ROW.match(line) for line in of_tests if re.match(r"\| [FS]\d", line))
    named = [each for ids in marked().values() for each in ids if each in rows()]
    assert sum(len(row.tests) for row in rows().values()) == len(named)


def test_marks_of_parameters_and_of_modules_are_found() -> None:
    found = marked()
    assert "F24" in found["tests/faults/test_injection.py::test_a_fault_happens_and_the_job_survives_it"]
    assert found[
        "tests/integration/test_migrating_while_running.py::test_a_migration_that_fails_leaves_nothing"
    ] == {"F70"}
    assert "S24" in found["tests/contract/test_hygiene.py::test_lint_refuses_what_is_dangerous"]
    assert "tests/faults/test_soak.py::test_nothing_is_lost_stuck_wrong_or_twice" in seldom()
    assert "tests/faults/test_model.py::test_many_orders_lose_no_job_in_memory" in seldom()
