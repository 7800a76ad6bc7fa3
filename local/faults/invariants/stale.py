"""I6: a result of an older attempt, or of a stage that has ended, changes nothing."""

from __future__ import annotations

import uuid
from typing import Any, Final

from indexmill.contracts.messages import StageFailure, stage_result, write
from local.faults.cloud import CALLBACKS, WORK_QUEUES, Cloud
from local.faults.invariants.violation import Database, Violation

_STATE: Final = """
SELECT to_jsonb(j),
       (SELECT jsonb_agg(to_jsonb(h) ORDER BY h.seq) FROM job_history AS h WHERE h.job_id = j.id),
       (SELECT jsonb_agg(to_jsonb(o) ORDER BY o.id) FROM outbox AS o WHERE o.job_id = j.id),
       (SELECT to_jsonb(d) FROM documents AS d WHERE d.document_id = j.document_id)
FROM jobs AS j WHERE j.id = %s
"""
_COUNTED: Final = "SELECT count(*) FROM inbox WHERE message_id = ANY(%s)"


def snapshot(database: Database, job_id: str) -> Any:
    """Return a snapshot of everything that a result could change of a job."""
    return database.execute(_STATE, (job_id,)).fetchone()


def late_failures(cloud: Cloud, job_id: str, attempt: int) -> list[str]:
    """Send a late failure of every stage for `attempt`; return the message ids."""
    late = [
        stage_result(
            message_id=str(uuid.uuid4()),
            job_id=job_id,
            attempt=attempt,
            stage=stage,
            status="failed",
            failure=StageFailure(code="internal_error", message="From a worker that was presumed dead."),
        )
        for stage in WORK_QUEUES
    ]
    for result in late:
        cloud.sqs.send_message(QueueUrl=cloud.queues[CALLBACKS], MessageBody=write(result))
    return [result.message_id for result in late]


def all_processed(database: Database, message_ids: list[str]) -> bool:
    """Return whether all results were processed."""
    row = database.execute(_COUNTED, (message_ids,)).fetchone()
    return bool(row and row[0] == len(message_ids))


def differences(database: Database, job_id: str, before: Any) -> list[Violation]:
    """Return the differences from the snapshot."""
    names = ("job", "history", "messages", "document")
    now = snapshot(database, job_id)
    return [
        Violation("I6", job_id, f"a stale result changed its {name}")
        for name, one, other in zip(names, before, now, strict=True)
        if one != other
    ]
