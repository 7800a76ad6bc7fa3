"""Dead letters: stored, applied again when they are results, and reported to their jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import (
    Message,
    NewerSchema,
    StageFailure,
    StageResult,
    UnreadableMessage,
    family,
    read,
    stage_result,
)
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.results.apply import Recorder
from indexmill.orchestrator.stages.registry import MODULES
from indexmill.orchestrator.store.jobs import DeadLetter, JobStore
from indexmill.orchestrator.store.results import Verdict
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import REASON
from indexmill.platform.consumer.sqs_batch import log_fields
from indexmill.platform.observability import Observability

_STAGES: Final = {family(module.TASK): stage for stage, module in MODULES.items()}
"""By the schema of their messages."""
_INLINE: Final = 32_000
"""A longer body goes to the blobs; the table keeps its beginning."""
_BEGINNING: Final = 2_000
_LAST_RECEIVE: Final = 20
"""After so many deliveries a dead result that is still ahead of its job stays a dead letter."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """Cause of a message's death, and the result to apply for it."""

    cause: str
    reason: str
    message: Message | None = None
    stage: str | None = None
    result: StageResult | None = None
    """To be applied."""


@dataclass(frozen=True, slots=True)
class KeepDeadLetters:
    """The dead-letter queues' use case."""

    store: JobStore
    record: Recorder
    relay: Relay
    blobs: BlobStore
    observability: Observability

    def __call__(self, event: dict[str, Any]) -> dict[str, Any]:
        """Handle an SQS event record by record; what cannot be kept or applied now stays in the queue."""
        failed = [
            {"itemIdentifier": record["messageId"]}
            for record in event.get("Records", [])
            if not self._done(record)
        ]
        self.observability.flush()
        return {"batchItemFailures": failed}

    def _done(self, record: dict[str, Any]) -> bool:
        known = log_fields(record["messageId"], record["body"])
        try:
            return self._keep(record)
        except TransientError as error:
            self.observability.log.warning("dead_letter.stays", extra={**known, "code": error.code})
        except Exception:
            # Its neighbours are handled all the same.
            self.observability.log.exception("dead_letter.failed", extra=known)
        return False

    def _keep(self, record: dict[str, Any]) -> bool:
        finding = _examine(record["body"])
        letter = self._letter(record, finding)
        if self.store.record_dead_letter(letter):
            # A letter that stays in its queue is delivered again; it is one letter all the same.
            self.observability.count("dead_letters_total", queue=letter.queue, cause=letter.cause)
        if finding.result is None or finding.result.job_id is None:
            return True
        (change,) = self.record.changes([finding.result])
        self.relay.send(list(change.outbox))
        ahead = change.verdict is Verdict.EARLY and finding.cause == "dead_callback"
        return not ahead or letter.receive_count >= _LAST_RECEIVE

    def _letter(self, record: dict[str, Any], finding: _Finding) -> DeadLetter:
        body: str = record["body"]
        attributes: Mapping[str, str] = record.get("attributes", {})
        ref = self._stored(body) if len(body) > _INLINE else None
        message = finding.message
        return DeadLetter(
            queue=str(record.get("eventSourceARN", "")).rpartition(":")[2],
            body=body if ref is None else body[:_BEGINNING],
            receive_count=int(attributes.get("ApproximateReceiveCount", 1)),
            reason=_said(record) or finding.reason,
            cause=finding.cause,
            job_id=message.job_id if message else None,
            stage=finding.stage,
            attempt=message.attempt if message else None,
            message_id=message.message_id if message else None,
            body_ref=ref,
            attributes=attributes,
            source_id=record["messageId"],
        )

    def _stored(self, body: str) -> BlobRef:
        data = body.encode("utf-8", "replace")
        return self.blobs.put(data, kind="dead-letters", content_type="application/json")


def _said(record: Mapping[str, Any]) -> str:
    """Return why a consumer set the message aside; "" for one that SQS moved."""
    attributes = record.get("messageAttributes") or {}
    return str(attributes.get(REASON, {}).get("stringValue") or "")


def _examine(body: str) -> _Finding:
    """Return what a dead message is; only one that can be read says anything about a job."""
    found = _family(body)
    stage = _STAGES.get(found)
    if stage is None and found != family(StageResult):
        return _Finding("foreign", "no message of ours")
    model: type[Message] = MODULES[stage].TASK if stage else StageResult
    try:
        message = read(model, body)
    except NewerSchema:
        return _Finding("newer_schema", "a newer schema than this code knows", stage=stage)
    except UnreadableMessage as error:
        return _Finding("unreadable", str(error), stage=stage)
    if isinstance(message, StageResult):
        return _Finding(
            "dead_callback", "a report that could not be applied", message, message.stage, message
        )
    if message.job_id is None:
        return _Finding("poison_message", "received too often; belongs to no job", message, stage)
    return _Finding("poison_message", "received too often", message, stage, _failure(message, stage))


def _failure(message: Message, stage: str | None) -> StageResult:
    failure = StageFailure(
        code=ErrorCode.POISON_MESSAGE, message="The work item could not be processed and was set aside."
    )
    return stage_result(
        message_id=f"{message.message_id}:dead",
        job_id=message.job_id,
        attempt=message.attempt,
        stage=stage,
        status="failed",
        failure=failure,
    )


def _family(body: str) -> str:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("schema", "")).rpartition(".v")[0] if isinstance(value, dict) else ""
