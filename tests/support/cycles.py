"""Jobs taken through the whole pipeline, with the real scrape worker over a site in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from indexmill.contracts.http_actions import ReplayRequest
from indexmill.contracts.job import Job, JobStatus, SubmitRequest
from indexmill.contracts.messages import ScrapeResult, ScrapeTask, StageResult, read
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.store.rows import NewJob, OutboxRow
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.scraper.worker import ScrapeBatch
from tests.support.job_stores import Jobs, Sent, embed_task, postgres_jobs
from tests.support.jobs import CALLER, chunked, embedded, new_job, submitted
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.queues import InMemoryQueue
from tests.twins.uploads import InMemoryUploads

PAGE, OTHER = f"{SITE}/page", f"{SITE}/other"

RECIPE = {"model": "m", "dimension": 4}
"""Facts of what `embedded` makes."""


@dataclass
class Cycle:
    """Jobs, and a scrape worker whose writes are counted."""

    jobs: Jobs
    scraper: ScraperHarness = field(default_factory=ScraperHarness)
    callbacks: InMemoryQueue = field(default_factory=InMemoryQueue)
    digests: bool = True
    """Whether publishing keeps the content's digest, as an early release did not."""
    keeps_text: bool = True
    """Whether it keeps the text that the chunks were cut from, as the release before did not."""

    texts: list[str | None] = field(default_factory=list)
    """Of the documents that the worker reported."""

    def __post_init__(self) -> None:
        """Build the worker; the site has two pages with the same words."""
        self.scraper.fetcher.pages |= dict.fromkeys((PAGE, OTHER), "<main><p>Some words.</p></main>")
        self.worker = ScrapeBatch(self.scraper.parts(), self.callbacks, InMemoryQueue())

    def rebuild(self) -> None:
        """Build the worker again, of changed parts."""
        self.worker.close()
        self.worker = ScrapeBatch(self.scraper.parts(), self.callbacks, InMemoryQueue())

    def scrape(self, row: OutboxRow) -> StageResult:
        """Let the worker handle a message and return its result."""
        task, deadline = read(ScrapeTask, row.payload), self.scraper.clock.monotonic() + 60
        self.worker([Delivery(task, 1, deadline, tries=1)])
        result = read(StageResult, self.callbacks.bodies.pop())
        if isinstance(result, ScrapeResult) and result.document is not None:
            self.texts.append(result.document.text)
        return result

    def publish(self, row: OutboxRow) -> None:
        """Take a job from its first message until it is done."""
        self.jobs.changes(self.scrape(row))
        if self.jobs.job(row.job_id).status is JobStatus.DONE:
            return
        task = embed_task(self.jobs.changes(chunked(row.job_id, row.attempt))[0].outbox)
        digest = task.content_sha256 if self.digests else None
        assert self.jobs.publish(
            task.target.document_id, task.generation, row.job_id, digest, text=self.keeps_text
        )
        self.jobs.changes(embedded(row.job_id, row.attempt))

    def submit(self, recipe: Mapping[str, Any] | None = RECIPE, **request: Any) -> OutboxRow:
        """Submit a request as it comes over HTTP, for the page; return the job's message."""
        sent, blobs = Sent(), self.scraper.blobs
        body = SubmitRequest.model_validate({"url": PAGE, "corpus_name": "docs", **request})
        submit = SubmitJobs(self.jobs.store, sent, blobs, InMemoryUploads(blobs), recipe=recipe)
        submit(CALLER, body, "r")
        (row,) = sent.rows
        return row

    def visit(self, **request: Any) -> Job:
        """Take a submitted job until it is done and return it."""
        row = self.submit(**request)
        self.publish(row)
        return self.jobs.job(row.job_id)

    def first(self, new: NewJob) -> OutboxRow:
        """Submit a job and return its message."""
        _, (row,) = submitted(self.jobs.store, new)
        return row

    def index(self, url: str = PAGE, **more: Any) -> str:
        """Take a new job of the page until it is done; return its id."""
        row = self.first(new_job(url, **more))
        self.publish(row)
        return row.job_id

    def replay(self, job_id: str) -> None:
        """Repeat a job with its stored content."""
        sent = Sent()
        ReplayJobs(self.jobs.store, sent).replay(CALLER, job_id, ReplayRequest(source="stored"), "r")
        self.publish(*sent.rows)

    def puts(self) -> int:
        """Return how many objects were written since the last call."""
        written = len(self.scraper.blobs.puts)
        self.scraper.blobs.puts.clear()
        return written


@contextmanager
def cycle_over(url: str) -> Iterator[Cycle]:
    """Yield a cycle over the database at `url`."""
    with postgres_jobs(url) as jobs:
        made = Cycle(jobs)
        yield made
        made.worker.close()
