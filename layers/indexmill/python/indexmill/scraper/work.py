"""Scrape what the queue hands out, and report to the Orchestrator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexmill.contracts.content import Document
from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.messages import ScrapeTask, StageFailure, StageResult, write
from indexmill.platform.deliveries import Delivery, Done, Outcome, Retry
from indexmill.platform.queues import Queue
from indexmill.platform.retry import RetryPolicy
from indexmill.scraper.scrape import ScrapeParts, execute_scrape

POLICY: Final = RetryPolicy(max_retries=3, max_backoff_s=300.0)
_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 10
_LONGEST_WAIT_S: Final = 12 * 3600.0
_RESEND_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Worked:
    """What became of one delivery: a report to send, or a wait."""

    result: StageResult | None = None
    wait: Retry | None = None


class ScrapeBatch:
    """A BatchUseCase[ScrapeTask]. Pages load side by side; what befalls one leaves the others alone."""

    def __init__(
        self, parts: ScrapeParts, callbacks: Queue, *, timeout_s: float = 30.0, policy: RetryPolicy = POLICY
    ) -> None:
        """`timeout_s` bounds each page; connections live as long as this object does."""
        self._parts = parts
        self._callbacks = callbacks
        self._timeout_s = timeout_s
        self._policy = policy
        self._loop = asyncio.new_event_loop()

    def __call__(self, deliveries: Sequence[Delivery[ScrapeTask]]) -> Sequence[Outcome]:
        """Return one outcome per delivery, in order."""
        worked = self._loop.run_until_complete(self._work(deliveries))
        outcomes: list[Outcome] = [item.wait or Done() for item in worked]
        reports = [
            (position, item.result)
            for position, item in enumerate(worked)
            if item.result is not None and item.result.job_id is not None
        ]
        bodies = [write(result) for _, result in reports]
        for refused in self._refused(bodies):
            outcomes[reports[refused][0]] = Retry(_RESEND_AFTER_S, ErrorCode.QUEUE_UNAVAILABLE)
        return outcomes

    def close(self) -> None:
        """Close connections and the event loop; nothing can be done afterwards."""
        self._loop.run_until_complete(self._parts.fetcher.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _refused(self, bodies: Sequence[str]) -> Sequence[int]:
        if not bodies:
            return ()
        try:
            return self._callbacks.send(bodies)
        except TransientError as error:
            _LOG.warning("results were not sent: %s", error.code)
            return range(len(bodies))

    async def _work(self, deliveries: Sequence[Delivery[ScrapeTask]]) -> list[_Worked]:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(delivery: Delivery[ScrapeTask]) -> _Worked:
            async with slots:
                return await self._one(delivery)

        return list(await asyncio.gather(*map(one, deliveries)))

    async def _one(self, delivery: Delivery[ScrapeTask]) -> _Worked:
        if delivery.receive_count > self._policy.max_tries:
            return _gave_up(delivery)
        task, clock = delivery.message, self._parts.clock
        started = clock.monotonic()
        deadline = min(delivery.deadline, started + self._timeout_s)
        try:
            document = await execute_scrape(task.url, task.job_id, parts=self._parts, deadline=deadline)
        except IndexmillError as error:
            return self._failed(delivery, error, elapsed_ms=_ms(clock.monotonic() - started))
        except Exception as error:  # noqa: BLE001 - whatever happens to a page must not reach its neighbours
            _LOG.exception("scraping failed unexpectedly", extra={"job_id": task.job_id})
            unexpected = TransientError(ErrorCode.INTERNAL_ERROR, type(error).__name__)
            return self._failed(delivery, unexpected, elapsed_ms=_ms(clock.monotonic() - started))
        return _Worked(result=_report(task, document=document, elapsed_ms=_ms(clock.monotonic() - started)))

    def _failed(self, delivery: Delivery[ScrapeTask], error: IndexmillError, *, elapsed_ms: int) -> _Worked:
        tries = delivery.receive_count
        if not error.retryable:
            failed = StageFailure(code=error.code, message=error.message, tries=tries)
        elif tries < self._policy.max_tries:
            wait = min(self._policy.delay(tries, retry_after=error.retry_after), _LONGEST_WAIT_S)
            return _Worked(wait=Retry(wait, error.code))
        elif error.code == ErrorCode.INTERNAL_ERROR:
            failed = StageFailure(code=error.code, message="Scraping failed unexpectedly", tries=tries)
        else:
            failed = StageFailure(
                code=ErrorCode.MAX_RETRIES_EXCEEDED,
                message=f"Scraping failed after {self._policy.max_retries} retries",
                cause=error.code,
                tries=tries,
            )
        return _Worked(result=_report(delivery.message, failure=failed, elapsed_ms=elapsed_ms))


def _gave_up(delivery: Delivery[ScrapeTask]) -> _Worked:
    """Return the report on a message whose tries all ended without an outcome."""
    failed = StageFailure(
        code=ErrorCode.POISON_MESSAGE,
        message="The page stopped the worker each time it was tried",
        cause=ErrorCode.WORKER_CRASHED,
        tries=delivery.receive_count - 1,
    )
    return _Worked(result=_report(delivery.message, failure=failed, elapsed_ms=0))


def _report(
    task: ScrapeTask,
    *,
    document: Document | None = None,
    failure: StageFailure | None = None,
    elapsed_ms: int,
) -> StageResult:
    return StageResult(
        message_id=f"{task.message_id}:result",
        job_id=task.job_id,
        attempt=task.attempt,
        request_id=task.request_id,
        stage="scraping",
        status="failed" if document is None else "success",
        document=document,
        failure=failure,
        elapsed_ms=elapsed_ms,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
