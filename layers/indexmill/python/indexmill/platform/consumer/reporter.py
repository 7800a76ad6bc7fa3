"""How a worker reports a stage to the Orchestrator, whatever the stage is."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, TypeVar

from indexmill.contracts.errors import ErrorCode, IndexmillError
from indexmill.contracts.messages import Message, Retrying, StageFailure, StageResult
from indexmill.platform.breakers import BreakerOpen
from indexmill.platform.consumer.deliveries import Delivery, Retry, Wait
from indexmill.platform.time.clock import Clock
from indexmill.platform.time.retry import RetryPolicy

M = TypeVar("M", bound=Message)
StageName = Literal["scraping", "embedding"]

_TOLD_FROM_S: Final = 30.0
"""A job is told of waits that are longer."""


def after_error(
    delivery: Delivery[M], error: IndexmillError, policy: RetryPolicy, what: str
) -> StageFailure | Retry | Wait:
    """Return what follows from a try that failed: the next one, a wait, or the stage's failure.

    `what` begins the sentence for people, for example "Scraping failed".
    """
    tries = delivery.tries
    if isinstance(error, BreakerOpen):
        return Wait(delivery.wait(error.wait_s), error.code)
    if not error.retryable:
        return StageFailure(code=error.code, message=error.message, tries=tries)
    if tries < policy.max_tries:
        return Retry(delivery.wait(policy.delay(tries, retry_after=error.retry_after)), error.code)
    if error.code == ErrorCode.INTERNAL_ERROR:
        return StageFailure(code=error.code, message=f"{what} unexpectedly", tries=tries)
    message = f"{what} after {policy.max_retries} retries"
    return StageFailure(code=ErrorCode.MAX_RETRIES_EXCEEDED, message=message, cause=error.code, tries=tries)


def poisoned(delivery: Delivery[M], what: str) -> StageFailure:
    """Return the failure of a message that took its process along each time; `what` says it for people."""
    timed_out = delivery.last_error == ErrorCode.TIMED_OUT
    before = f" (last error: {delivery.last_error})" if delivery.last_error and not timed_out else ""
    return StageFailure(
        code=ErrorCode.POISON_MESSAGE,
        message=what + before,
        cause=ErrorCode.TIMED_OUT if timed_out else ErrorCode.WORKER_CRASHED,
        tries=delivery.tries - 1 + delivery.crashes,
    )


def wait_report(
    delivery: Delivery[M], wait: Retry | Wait, stage: StageName, clock: Clock
) -> StageResult | None:
    """Return what the job is told about a wait: nothing when it is short or when there is no job."""
    task = delivery.message
    if wait.after_s <= _TOLD_FROM_S or task.job_id is None:
        return None
    return StageResult(
        # Each wait is news of its own, and each copy of it is the same.
        message_id=f"{task.message_id}:retrying:{delivery.receive_count}",
        job_id=task.job_id,
        attempt=task.attempt,
        request_id=task.request_id,
        stage=stage,
        status="retrying",
        retrying=Retrying(
            tries=delivery.tries if isinstance(wait, Retry) else delivery.tries - 1,
            next_retry_at=clock.now() + timedelta(seconds=wait.after_s),
            retry_in_s=wait.after_s,
            cause=wait.reason,
        ),
    )
