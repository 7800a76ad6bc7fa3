"""The outcome recorder repeats itself, and its comparison finds a difference."""

from __future__ import annotations

from typing import Any

import pytest

from local.backends.postgres import create_database
from tests.perf.outcomes.comparison import differences
from tests.perf.outcomes.draws import Draws
from tests.perf.outcomes.order import Order
from tests.perf.outcomes.rows import outcome


def _recorded(database_url: str, number: int, class_: str) -> dict[str, Any]:
    order = Order(Draws(1, number), class_)
    order.run(database_url)
    found = outcome(order)
    order.system.close()
    return found


@pytest.mark.parametrize("class_", ["calm", "faults", "chunk_faults"])
def test_an_order_ends_alike_in_two_databases(postgres_server: str, class_: str) -> None:
    one, other = (create_database(postgres_server, f"{class_}_{at}", template="migrated") for at in (1, 2))
    first, second = _recorded(one, 3, class_), _recorded(other, 3, class_)
    assert first == second
    assert {job["status"] for job in first["jobs"]} <= {"done", "failed"}
    assert first["answers"]
    assert any(hits for hits in first["searches"].values())


def _record(**changes: Any) -> dict[str, Any]:
    record = {
        "order": 1,
        "class": "faults",
        "chunk_faults": False,
        "jobs": [{"status": "failed", "failed_stage": "chunking", "error": {"code": "poison_message"}}],
        "documents": [],
        "searches": {"words": [["https://example.com/a", "words"]]},
    }
    return record | changes


def test_a_difference_is_reported_by_its_path() -> None:
    other = [{"status": "failed", "failed_stage": "chunking", "error": {"code": "max_retries_exceeded"}}]
    (reported,) = differences(_record(), _record(jobs=other))
    assert reported == "jobs[0].error.code: 'poison_message' | 'max_retries_exceeded'"


def test_with_a_fault_in_chunk_work_only_ends_and_content_are_compared() -> None:
    other = [{"status": "failed", "failed_stage": "chunking", "error": {"code": "max_retries_exceeded"}}]
    before = _record(chunk_faults=True)
    assert differences(before, _record(chunk_faults=True, jobs=other)) == []
    done = [{"status": "done", "failed_stage": None, "error": None}]
    assert len(differences(before, _record(chunk_faults=True, jobs=done))) == 2
    assert len(differences(before, _record(chunk_faults=True, searches={"words": []}))) == 1
