"""Scrape what the queue hands out, and report to the Orchestrator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from indexmill.contracts.content import Document
from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.messages import ScrapeTask, StageFailure, StageResult
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Retry, Wait
from indexmill.platform.consumer.record_times import RecordTimes
from indexmill.platform.consumer.reporter import after_error, poisoned, wait_report
from indexmill.platform.consumer.settling import SourceQueue
from indexmill.platform.ids import worker_id
from indexmill.platform.queues import Queue
from indexmill.platform.time.retry import RetryPolicy
from indexmill.scraper.desk import Desk
from indexmill.scraper.scrape import ScrapeParts, execute_scrape

POLICY: Final = RetryPolicy(max_retries=3, max_backoff_s=300.0)
_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 10
_FLUSH_EVERY_S: Final = 0.3
"""How long a finished page may wait for slower ones before it is reported without them."""
_PAGE_GUESS_S: Final = 2.0
_SOON_S: Final = 1.0


class ScrapeBatch:
    """A BatchUseCase[ScrapeTask]. Pages load side by side; what befalls one leaves the others alone."""

    def __init__(
        self,
        parts: ScrapeParts,
        callbacks: Queue,
        source: SourceQueue,
        *,
        timeout_s: float = 30.0,
        policy: RetryPolicy = POLICY,
    ) -> None:
        """`timeout_s` bounds each page; connections live as long as this object does."""
        self._parts = parts
        self._callbacks = callbacks
        self._source = source
        self._timeout_s = timeout_s
        self._policy = policy
        self._times = RecordTimes(_PAGE_GUESS_S)
        self._loop = asyncio.new_event_loop()

    def __call__(self, deliveries: Sequence[Delivery[ScrapeTask]]) -> Sequence[Outcome]:
        """Return one outcome per delivery, in order; finished pages are not held up by slow ones."""
        if not deliveries:
            return []
        self._times.began(deliveries[0].deadline - self._parts.clock.monotonic())
        desk = Desk(deliveries, self._callbacks, self._source)
        self._loop.run_until_complete(self._work(desk))
        return desk.close()

    def close(self) -> None:
        """Close connections and the event loop; nothing can be done afterwards."""
        self._loop.run_until_complete(self._parts.fetcher.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _work(self, desk: Desk) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(position: int, delivery: Delivery[ScrapeTask]) -> None:
            async with slots:
                desk.put(position, *await self._one(delivery))

        waiting = {asyncio.create_task(one(at, each)) for at, each in enumerate(desk.deliveries)}
        while waiting:
            finished, waiting = await asyncio.wait(waiting, timeout=_FLUSH_EVERY_S)
            for task in finished:
                task.result()
            if waiting:
                # In a thread, so that the slow ones go on meanwhile.
                await asyncio.to_thread(desk.flush)

    async def _one(self, delivery: Delivery[ScrapeTask]) -> tuple[Outcome, StageResult | None]:
        task, clock = delivery.message, self._parts.clock
        started = clock.monotonic()
        if delivery.is_poison:
            failed = poisoned(delivery, "The page stopped the worker each time it was tried")
            return Done(), _report(delivery, failure=failed, elapsed_s=0.0)
        if not self._times.suffices(delivery.deadline - started):
            return Wait(delivery.wait(_SOON_S), "deadline"), None
        deadline = min(delivery.deadline, started + self._timeout_s)
        try:
            document = await execute_scrape(
                task.url, task.job_id, parts=self._parts, deadline=deadline, stored=task.stored
            )
        except IndexmillError as error:
            return self._failed(delivery, error, clock.monotonic() - started)
        except Exception as error:  # noqa: BLE001 - whatever happens to a page must not reach its neighbours
            _LOG.exception("scraping failed unexpectedly", extra={"job_id": task.job_id})
            unexpected = TransientError(ErrorCode.INTERNAL_ERROR, type(error).__name__)
            return self._failed(delivery, unexpected, clock.monotonic() - started)
        finally:
            self._times.add(clock.monotonic() - started)
        return Done(), _report(delivery, document=document, elapsed_s=clock.monotonic() - started)

    def _failed(
        self, delivery: Delivery[ScrapeTask], error: IndexmillError, elapsed_s: float
    ) -> tuple[Outcome, StageResult | None]:
        follows = after_error(delivery, error, self._policy, "Scraping failed")
        if isinstance(follows, Retry | Wait):
            return follows, wait_report(delivery, follows, "scraping", self._parts.clock)
        return Done(), _report(delivery, failure=follows, elapsed_s=elapsed_s)


def _report(
    delivery: Delivery[ScrapeTask],
    *,
    document: Document | None = None,
    failure: StageFailure | None = None,
    elapsed_s: float,
) -> StageResult:
    task = delivery.message
    return StageResult(
        message_id=f"{task.message_id}:result",
        job_id=task.job_id,
        attempt=task.attempt,
        request_id=task.request_id,
        stage="scraping",
        status="failed" if document is None else "success",
        document=document,
        failure=failure,
        tries=delivery.tries,
        worker=worker_id(),
        elapsed_ms=round(elapsed_s * 1000),
    )
