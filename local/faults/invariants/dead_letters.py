"""I10: poison messages leave the queues, are stored, and fail their job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from local.faults.invariants.violation import Database, Violation

_UNTOLD: Final = """
SELECT DISTINCT j.id, j.status FROM dead_letters AS d JOIN jobs AS j ON j.id = d.job_id
WHERE j.status NOT IN ('done', 'failed')
"""


def no_poison_left(database: Database, depths: Mapping[str, int]) -> list[Violation]:
    """Check I10; `depths` are those of an idle stack."""
    found = [
        Violation("I10", queue, f"{count} messages are still there")
        for queue, count in depths.items()
        if count and queue.endswith("Dlq")
    ]
    return found + [
        Violation("I10", job_id, f"has a dead letter, and is still {status}")
        for job_id, status in database.execute(_UNTOLD).fetchall()
    ]
