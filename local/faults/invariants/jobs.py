"""I1, I2 and I3: no accepted job is lost, none is stuck, and every history is a valid path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from local.faults.cloud import CALLBACKS, WORK_QUEUES
from local.faults.invariants.violation import Accepted, Database, Violation

_TERMINAL: Final = ("done", "failed")
_ACTIVE: Final = ("scraping", "chunking", "embedding")
_STEPS: Final = {
    (None, "pending"),
    ("pending", "scraping"),
    ("pending", "failed"),
    ("scraping", "chunking"),
    ("scraping", "embedding"),
    ("scraping", "done"),
    ("scraping", "failed"),
    ("chunking", "embedding"),
    ("chunking", "failed"),
    ("embedding", "done"),
    ("embedding", "failed"),
}
"""Within one attempt. From scraping to a terminal status: unchanged content, and stages that a job skips."""
_RESUMED: Final = {("pending", "chunking"), ("pending", "embedding")}
"""Next statuses of a later attempt: the stage that failed."""
_AGAIN: Final = ("pending", *_ACTIVE)
"""First status of the next attempt; only after a failure."""

_WITHOUT_MESSAGE: Final = """
SELECT j.id, j.status FROM jobs AS j
WHERE j.status NOT IN ('done', 'failed') AND NOT EXISTS (
    SELECT FROM outbox AS o WHERE o.job_id = j.id AND o.attempt = j.attempt
      AND (o.stage = j.status OR j.status = 'pending'))
"""
_HISTORY: Final = """
SELECT j.id, j.status, j.attempt, h.attempt, h.from_status, h.to_status
FROM jobs AS j LEFT JOIN job_history AS h ON h.job_id = j.id ORDER BY j.id, h.seq
"""
_UNSENT: Final = """
SELECT stage, count(*) FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL GROUP BY stage
"""
_FORGED: Final = """
SELECT h.job_id FROM job_history AS h WHERE h.hash <> job_history_hash(h) OR h.prev_hash <> coalesce((
    SELECT p.hash FROM job_history AS p
    WHERE p.job_id = h.job_id AND p.seq < h.seq ORDER BY p.seq DESC LIMIT 1
), '')
"""


def no_job_lost(database: Database, accepted: Sequence[Accepted]) -> list[Violation]:
    """Check I1: a job answered with 202 exists, and one that is not terminal has its message."""
    known = {row[0] for row in database.execute("SELECT id FROM jobs").fetchall()}
    lost = [each.job_id for each in accepted if each.job_id not in known]
    found = [Violation("I1", job_id, "was accepted and does not exist") for job_id in lost]
    return found + [
        Violation("I1", job_id, f"is {status} and no message of its attempt was ever committed")
        for job_id, status in database.execute(_WITHOUT_MESSAGE).fetchall()
    ]


def no_message_missing(database: Database, depths: Mapping[str, int]) -> list[Violation]:
    """Check I2: every job in flight has a message that is queued, in flight or scheduled."""
    active: dict[str, int] = dict(
        database.execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall()
    )
    unsent: dict[str, int] = dict(database.execute(_UNSENT).fetchall())
    found = []
    for stage in _ACTIVE:
        queued = depths.get(WORK_QUEUES[stage], 0)
        covered = unsent.get(stage, 0) + queued + depths.get(CALLBACKS, 0)
        if active.get(stage, 0) > covered:
            what = f"{active[stage]} jobs in flight, {covered} messages unsent, queued or in results"
            found.append(Violation("I2", stage, what))
    return found


def all_jobs_terminal(database: Database, accepted: Sequence[Accepted]) -> list[Violation]:
    """Check I2 in an idle stack: every job, also one whose 202 was lost, has its proper terminal status."""
    rows = {row[0]: row[1:] for row in database.execute("SELECT id, status, error FROM jobs").fetchall()}
    found = [
        Violation("I2", job_id, f"is still {status}")
        for job_id, (status, _) in rows.items()
        if status not in _TERMINAL
    ]
    for each in accepted:
        status, error = rows.get(each.job_id, (each.ends, None))
        if status in _TERMINAL and status != each.ends:
            found.append(Violation("I2", each.job_id, f"ended {status}, not {each.ends}: {error}"))
    return found


def histories_are_valid(database: Database) -> list[Violation]:
    """Check I3: each history is a path of the state machine, complete, in order and correctly hashed."""
    rows = database.execute(_HISTORY).fetchall()
    found = [
        Violation("I3", job_id, what)
        for job_id, of_job in groupby(rows, key=lambda row: row[0])
        for what in _path_errors(list(of_job))
    ]
    forged = {row[0] for row in database.execute(_FORGED).fetchall()}
    return found + [
        Violation("I3", job_id, "the chain of its history is broken") for job_id in sorted(forged)
    ]


def _path_errors(rows: list[tuple[Any, ...]]) -> list[str]:
    _, status, attempt, *_ = rows[0]
    steps = [row[3:] for row in rows if row[3] is not None]
    if not steps:
        return ["has no history"]
    errors = []
    if steps[0][:2] != (1, None):
        errors.append(f"begins with attempt {steps[0][0]} from {steps[0][1]}")
    if (steps[-1][0], steps[-1][2]) != (attempt, status):
        errors.append(f"is {status}, attempt {attempt}, and its history ends {steps[-1][2]}, {steps[-1][0]}")
    seen: set[tuple[int, str]] = set()
    for number, _, to in steps:
        if (number, to) in seen:
            errors.append(f"became {to} twice in attempt {number}")
        seen.add((number, to))
    for before, step in pairwise(steps):
        errors += _step_errors(before, step)
    return errors


def _step_errors(before: tuple[Any, ...], step: tuple[Any, ...]) -> list[str]:
    number, came_from, to = step
    if came_from != before[2]:
        return [f"went from {came_from} to {to} although it was {before[2]}"]
    if number == before[0]:
        known = _STEPS | _RESUMED if number > 1 else _STEPS
        return [] if (came_from, to) in known else [f"went from {came_from} to {to}"]
    begins = number == before[0] + 1 and came_from == "failed" and to in _AGAIN
    return [] if begins else [f"attempt {number} begins with {came_from} to {to} after attempt {before[0]}"]
