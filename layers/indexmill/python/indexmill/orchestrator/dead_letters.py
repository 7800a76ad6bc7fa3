"""What ends in a dead-letter queue is kept, and the job it belongs to is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import (
    EmbedTask,
    Message,
    NewerSchema,
    ScrapeTask,
    StageFailure,
    StageResult,
    UnreadableMessage,
    read,
)
from indexmill.orchestrator.ports import DeadLetter, JobStore
from indexmill.orchestrator.relay import CallRelay
from indexmill.orchestrator.results import Recorder
from indexmill.platform.observability import Observability

_STAGE_OF = {"indexmill.scrape.": "scraping", "indexmill.embed.": "embedding"}
_MODEL_OF: dict[str, type[Message]] = {"scraping": ScrapeTask, "embedding": EmbedTask}


@dataclass(frozen=True, slots=True)
class BuryDeadLetters:
    """The dead-letter queues' use case."""

    store: JobStore
    record: Recorder
    relay: CallRelay
    observability: Observability

    def __call__(self, event: dict[str, Any]) -> dict[str, Any]:
        """Handle an SQS event record by record; what Postgres cannot take now stays in the queue."""
        failed = []
        for record in event.get("Records", []):
            try:
                self._bury(record)
            except TransientError as error:
                self.observability.log.warning("dead_letter.kept", extra={"code": error.code})
                failed.append({"itemIdentifier": record["messageId"]})
        self.observability.flush()
        return {"batchItemFailures": failed}

    def _bury(self, record: dict[str, Any]) -> None:
        body = record["body"]
        queue = str(record.get("eventSourceARN", "")).rpartition(":")[2]
        result, reason = _last_word(body)
        letter = DeadLetter(
            queue=queue,
            body=body,
            receive_count=int(record.get("attributes", {}).get("ApproximateReceiveCount", 1)),
            reason=reason,
            job_id=result.job_id if result else None,
        )
        self.store.record_dead_letter(letter)
        self.observability.count("dead_letters_total", queue=queue)
        if result is not None and result.job_id is not None:
            self.relay.run(self.record([result]))


def _last_word(body: str) -> tuple[StageResult | None, str]:
    """Return the result to apply for a dead message, if one follows from it, and why it died."""
    try:
        return read(StageResult, body), "a callback that could not be applied is applied again"
    except (UnreadableMessage, NewerSchema):
        pass
    stage = _stage(body)
    if stage is None:
        return None, "no message of ours"
    try:
        task = read(_MODEL_OF[stage], body)
        job_id, attempt, message_id = task.job_id, task.attempt, task.message_id
    except NewerSchema:
        return None, "a newer schema than this code knows"
    except UnreadableMessage:
        job_id, attempt, message_id = _salvage(body)
    if job_id is None:
        return None, "belongs to no job"
    failure = StageFailure(
        code=ErrorCode.POISON_MESSAGE, message="The work item could not be processed and was set aside."
    )
    result = StageResult(
        message_id=f"{message_id}:dead",
        job_id=job_id,
        attempt=attempt,
        stage=cast("Literal['scraping', 'embedding']", stage),
        status="failed",
        failure=failure,
    )
    return result, "received too often or unreadable"


def _fields(body: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _stage(body: str) -> str | None:
    name = str(_fields(body).get("schema", ""))
    return next((stage for prefix, stage in _STAGE_OF.items() if name.startswith(prefix)), None)


def _salvage(body: str) -> tuple[str | None, int, str]:
    """Read what a broken message still tells of its job."""
    fields = _fields(body)
    job_id, attempt = fields.get("job_id"), fields.get("attempt", 1)
    if not isinstance(job_id, str) or not isinstance(attempt, int) or attempt < 1:
        return None, 1, ""
    return job_id, attempt, str(fields.get("message_id", job_id))[:100]
