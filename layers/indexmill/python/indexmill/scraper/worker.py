"""Scrape worker: loads the pages of a batch concurrently and reports each as soon as it is finished."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from indexmill.contracts.content import Document
from indexmill.contracts.crawl import CrawlRules
from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError, TransientError
from indexmill.contracts.messages import ScrapeTask, StageFailure
from indexmill.contracts.pipeline import BY_NAME
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.consumer.deliveries import BatchReporter, Delivery, Outcome, RecordTimes, WorkerStage
from indexmill.platform.progress import Cancels
from indexmill.platform.time import Clock
from indexmill.scraper.extract.content import Unusable
from indexmill.scraper.ports import NameNotFound
from indexmill.scraper.rate_limit import PageFetch
from indexmill.scraper.revisit import StoredPage
from indexmill.scraper.scrape import NotTried, ScrapeParts, execute_scrape
from indexmill.scraper.sitemap import read_sitemap

_STAGE: Final = WorkerStage(
    BY_NAME["scraping"],
    "The page stopped the worker each time it was tried",
)
_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 10
_FLUSH_EVERY_S: Final = 0.3
"""How long a finished page may wait for slower ones before it is reported without them."""
_PAGE_GUESS_S: Final = 2.0
_FRESH_S: Final = 0.8
"""How old marks of canceled jobs may be at a request: it begins within a second of the cancel's answer."""


class _Marks:
    """Marks of the jobs of one batch. They are read before a request when they are not fresh."""

    def __init__(self, cancels: Cancels, clock: Clock, deliveries: Sequence[Delivery[ScrapeTask]]) -> None:
        self._cancels, self._clock = cancels, clock
        self._job_ids = [each.message.job_id for each in deliveries if each.message.job_id]
        self._found: Mapping[str, int] = {}
        self._read_at = -math.inf
        self._lock = asyncio.Lock()

    async def has(self, task: ScrapeTask) -> bool:
        """Return whether the task's attempt was canceled."""
        async with self._lock:
            now = self._clock.monotonic()
            if now - self._read_at > _FRESH_S:
                self._found = await asyncio.to_thread(self._cancels.canceled, self._job_ids)
                self._read_at = now
        return self._found.get(task.job_id or "", 0) >= task.attempt


class ScrapeBatch:
    """A BatchUseCase[ScrapeTask]. Pages load concurrently and fail independently."""

    def __init__(
        self,
        parts: ScrapeParts,
        callbacks: Queue,
        source: Queue,
        *,
        timeout_s: float = 30.0,
        cancels: Cancels | None = None,
    ) -> None:
        """`timeout_s` bounds each page, and those of `cancels` are not loaded.

        Connections live as long as this object does.
        """
        self._parts, self._following = parts, replace(parts, wanted=replace(parts.wanted, links=True))
        self._callbacks = callbacks
        self._source = source
        self._timeout_s = timeout_s
        self._cancels = cancels
        self._marks: _Marks | None = None
        self._times = RecordTimes(_PAGE_GUESS_S)
        self._loop = asyncio.new_event_loop()

    def __call__(self, deliveries: Sequence[Delivery[ScrapeTask]]) -> Sequence[Outcome]:
        """Return one outcome per delivery, in order; finished pages do not wait for slow ones."""
        if not deliveries:
            return []
        self._times.begin(deliveries[0].deadline - self._parts.clock.monotonic())
        if self._cancels is not None:
            self._marks = _Marks(self._cancels, self._parts.clock, deliveries)
        reporter = BatchReporter(_STAGE, deliveries, self._callbacks, self._parts.clock, self._source)
        self._loop.run_until_complete(self._work(reporter))
        self._parts.rates.flush()
        return reporter.finish()

    def close(self) -> None:
        """Close connections and the event loop; nothing can be done afterwards."""
        self._loop.run_until_complete(self._parts.fetcher.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _work(self, reporter: BatchReporter[ScrapeTask]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(position: int) -> None:
            async with slots:
                await self._one(position, reporter)

        waiting = {asyncio.create_task(one(at)) for at in range(len(reporter.deliveries))}
        while waiting:
            finished, waiting = await asyncio.wait(waiting, timeout=_FLUSH_EVERY_S)
            for task in finished:
                task.result()
            if waiting:
                # In a thread: it must not block the pages that are still loading.
                await asyncio.to_thread(reporter.flush)

    async def _one(self, position: int, reporter: BatchReporter[ScrapeTask]) -> None:
        delivery = reporter.deliveries[position]
        task, clock = delivery.message, self._parts.clock
        reporter.begin(position)
        started = clock.monotonic()
        if delivery.is_poison:
            reporter.poison(position)
            return
        if not self._times.suffices(delivery.deadline - started):
            reporter.out_of_time(position)
            return
        deadline = min(delivery.deadline, started + self._timeout_s)
        try:
            fetch = self._parts.rates.page(deadline, task.message_id, delivery.resume, task.hosts)
            if self._marks is not None and task.job_id is not None:
                fetch.canceled = partial(self._marks.has, task)
            if task.sitemap is None:
                await self._page(position, task, fetch, reporter)
            else:
                await self._sitemap(position, task.url, task.sitemap, fetch, reporter)
        except NotTried:
            reporter.out_of_time(position)
        except Unusable as error:
            reporter.failure(position, self._unusable(task, error, delivery.tries))
        except IndexmillError as error:
            reporter.error(position, _of_page(task, error))
        except Exception as error:  # noqa: BLE001 - a defect that one page triggers must not fail the others
            fields = {"job_id": task.job_id, "request_id": task.request_id}
            _LOG.exception("scraping failed unexpectedly", extra=fields)
            reporter.error(position, TransientError(ErrorCode.INTERNAL_ERROR, type(error).__name__))
        finally:
            self._times.add(clock.monotonic() - started)

    async def _page(
        self, position: int, task: ScrapeTask, fetch: PageFetch, reporter: BatchReporter[ScrapeTask]
    ) -> None:
        parts = self._following if task.links else self._parts
        if task.accept:
            parts = replace(parts, wanted=replace(parts.wanted, **dict.fromkeys(task.accept, True)))
        document = await execute_scrape(
            task.url,
            task.job_id,
            parts=parts,
            fetch=fetch,
            before=StoredPage.of(task),
        )
        reporter.spent(position, **_bytes(task, document))
        reporter.success(position, document=document)

    async def _sitemap(
        self,
        position: int,
        url: str,
        rules: CrawlRules,
        fetch: PageFetch,
        reporter: BatchReporter[ScrapeTask],
    ) -> None:
        sitemap, size = await read_sitemap(url, rules, parts=self._parts, fetch=fetch)
        reporter.spent(position, bytes_fetched=size, bytes_stored=0)
        reporter.success(position, sitemap=sitemap)

    def _unusable(self, task: ScrapeTask, error: Unusable, tries: int) -> StageFailure:
        links = list(error.links) if task.links else None
        return StageFailure(code=error.code, message=error.message, tries=tries, links=links)


def _of_page(task: ScrapeTask, error: IndexmillError) -> IndexmillError:
    """Return the error as it is for this page: a name that does not exist is the end of a new one."""
    if not isinstance(error, NameNotFound) or task.published or task.known is not None:
        return error
    return PermanentError(error.code, error.message)


def _bytes(task: ScrapeTask, document: Document) -> dict[str, int]:
    """Return the bytes that were fetched from the site, and those that were written to S3."""
    raw, before = document.raw_ref, task.stored or task.known
    size = raw.size if raw is not None else 0
    asked = task.stored is None and document.unchanged not in ("not_modified", "max_age")
    kept = before is not None and before.ref == raw and before.stored_at == document.raw_stored_at
    text = document.text_ref.size if document.text_ref is not None else 0
    return {"bytes_fetched": size if asked else 0, "bytes_stored": text + (0 if kept else size)}
