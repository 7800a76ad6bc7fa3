"""Another caller's object answers like an unknown one, on every endpoint that names one."""

from __future__ import annotations

import pytest

from tests.support.foreign_objects import (
    OBJECTS,
    PLAIN,
    UNKNOWN,
    Row,
    comparable,
    foreign_objects,
    objects_of,
    rows,
    unclassified,
    unknown_cursor,
)
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e


def test_every_place_of_the_contract_is_classified() -> None:
    assert unclassified() == [], "add the name to OBJECTS, or to PLAIN when it names no object of a caller"
    assert not OBJECTS.keys() & PLAIN
    assert len(rows()) >= 29


@pytest.fixture(scope="module")
def page(stack: RunningStack) -> str:
    return f"{stack.site}/handbook.html"


@pytest.fixture(scope="module")
def foreign(stack: RunningStack, page: str) -> dict[str, str]:
    return foreign_objects(stack, page)


@pytest.fixture(scope="module")
def own(stack: RunningStack, page: str) -> dict[str, str]:
    """Return objects of the second caller, who asks."""
    with stack.http(stack.other_api_key) as other:
        return objects_of(other, page, "matrix-own", "a-key-of-the-second-caller")


@pytest.mark.shows("B64", "B72", "B74", "B90", "S1")
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.method}-{row.path}-{row.keys[0]}")
def test_a_foreign_object_answers_like_an_unknown_one(
    stack: RunningStack, page: str, foreign: dict[str, str], own: dict[str, str], row: Row
) -> None:
    theirs = foreign[row.kind]
    nobodys = unknown_cursor(theirs) if row.kind == "cursor" else UNKNOWN[row.kind]
    answers = []
    with stack.http(stack.other_api_key) as other:
        for named in (theirs, nobodys):
            answer = other.request(**row.request(named, own, page))
            answers.append(comparable(answer.status_code, answer.headers, answer.content, named))
    assert answers[0] == answers[1]
    assert answers[0][0] in (200, 202, 403, 404, 422)


def test_the_comparison_sees_an_object_of_the_callers_own(
    stack: RunningStack, page: str, own: dict[str, str]
) -> None:
    """Otherwise the matrix would pass although nothing was asked."""
    seen = set()
    with stack.http(stack.other_api_key) as other:
        for row in rows():
            if row.kind not in ("job", "batch", "cursor") or row.place == "body":
                continue
            answer = other.request(**row.request(own[row.kind], own, page))
            if answer.status_code < 400:
                seen.add(row.path)
    assert {"/orchestrator/jobs", "/orchestrator/jobs/{job_id}", "/orchestrator/batches/{batch_id}"} <= seen
