"""Crawls over a site in memory, with the real scrape worker."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from indexmill.contracts.http_actions import ReplayRequest
from indexmill.contracts.job import Job, SubmitRequest
from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.scraper.ports import Fetched, Validators
from tests.support.cycles import RECIPE, Cycle
from tests.support.job_stores import Sent, embed_task
from tests.support.jobs import CALLER, chunked, embedded
from tests.support.scraper import SITE
from tests.twins.uploads import InMemoryUploads

HOME = f"{SITE}/"


def page(*links: str, text: str = "Some words.") -> str:
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return f"<main><p>{text}</p>{anchors}</main>"


@dataclass
class Crawler:
    """Crawls over a site in memory, a batch of messages at a time."""

    cycle: Cycle
    queue: deque[OutboxRow] = field(default_factory=deque)
    crawl_id: str = ""

    def serve(self, pages: dict[str, str], etag: str | None = None) -> None:
        """Let the site have these pages, by path."""
        for path, html in pages.items():
            url = f"{SITE}{path}"
            self.cycle.scraper.fetcher.pages[url] = Fetched(
                url, 200, "text/html", "utf-8", html.encode(), validators=Validators(etag=etag, url=url)
            )

    def start(self, url: str = HOME, *, recipe: Any = RECIPE, kind: str = "crawl", **request: Any) -> str:
        """Submit a crawl and return its first job's id."""
        sent, blobs = Sent(), self.cycle.scraper.blobs
        body = SubmitRequest.model_validate({"url": url, "corpus_name": "docs", "kind": kind, **request})
        submit = SubmitJobs(self.cycle.jobs.store, sent, blobs, InMemoryUploads(blobs), recipe=recipe)
        accepted = submit(CALLER, body, "r")
        assert accepted.batch_id is not None
        self.crawl_id = accepted.batch_id
        self.queue.extend(sent.rows)
        return accepted.job_id

    def step(self, row: OutboxRow) -> list[StageResult]:
        """Let a message's worker answer, and apply that; what follows is queued. Return its results."""
        jobs = self.cycle.jobs
        if row.stage == "scraping":
            result = self.cycle.scrape(row)
        elif row.stage == "chunking":
            result = chunked(row.job_id, row.attempt)
        else:
            task = embed_task([row])
            jobs.publish(task.target.document_id, task.generation, row.job_id, task.content_sha256)
            result = embedded(row.job_id, row.attempt)
        self.take(result)
        return [result]

    def take(self, *results: StageResult) -> None:
        """Apply results and queue what follows."""
        for change in self.cycle.jobs.changes(*results):
            self.queue.extend(change.outbox)

    def retry(self, job_id: str, *, kept: bool = True) -> None:
        """Retry a job that failed in its scraping; queue its message, or a new one unless it is `kept`."""
        if not kept:
            self.cycle.jobs.forget_payloads(job_id, "scraping")
        self.queue.extend(self.cycle.jobs.retry(job_id).outbox)

    def replay(self, job_id: str) -> str:
        """Fetch the page of a job that ended again, as a job of its own; return its id."""
        sent = Sent()
        replay = ReplayJobs(self.cycle.jobs.store, sent)
        new = replay.replay(CALLER, job_id, ReplayRequest(source="fetch"), "r").job_id
        self.queue.extend(sent.rows)
        self.run()
        return new

    def run(self, chance: random.Random | None = None) -> list[Job]:
        """Work until nothing is left, in some order; return the crawl's jobs, the first one first."""
        while self.queue:
            at = chance.randrange(len(self.queue)) if chance else 0
            row = self.queue[at]
            del self.queue[at]
            self.step(row)
        return self.jobs()

    def jobs(self) -> list[Job]:
        """Return the crawl's jobs, the first one first."""
        return self.cycle.jobs.find(batch_id=self.crawl_id)[::-1]

    def visited(self) -> list[str]:
        """Return the paths of the crawl's jobs, sorted."""
        return sorted(job.url.removeprefix(SITE) for job in self.jobs())


def sitemap(*paths: str) -> str:
    entries = "".join(f"<url><loc>{SITE}{path}</loc></url>" for path in paths)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


def path_of(row: OutboxRow) -> str:
    return read(ScrapeTask, row.payload).url.removeprefix(SITE) if row.stage == "scraping" else ""
