"""A site whose pages name each other, and jobs over it, each step by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, SubmitRequest
from indexmill.contracts.messages import EmbedTask, read
from indexmill.orchestrator.admission.admit import admit_all
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.sweeper.sweep import read_again
from indexmill.platform.postgres.database import Database
from tests.support.cycles import RECIPE, Cycle, cycle_over
from tests.support.job_stores import Sent
from tests.support.jobs import CALLER, chunked, embedded
from tests.support.scraper import SITE
from tests.twins.uploads import InMemoryUploads

WORDS = "The harbour opens at six and closes at nine in the evening."


def page(text: str = WORDS, canonical: str | None = None, links: tuple[str, ...] = ()) -> str:
    named = f'<link rel="canonical" href="{canonical}">' if canonical else ""
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return (
        f"<html><head><title>T</title>{named}</head><body><main><p>{text}</p>{anchors}</main></body></html>"
    )


@dataclass
class Site:
    """Jobs over a site, each step by itself."""

    cycle: Cycle
    database: Database
    number: int = 0
    rows: list[OutboxRow] = field(default_factory=list)

    def serve(self, **pages: Any) -> None:
        """Let the site have these pages, by name."""
        self.cycle.scraper.fetcher.pages |= {f"{SITE}/{name}": html for name, html in pages.items()}

    def submit(self, name: str, corpus: str = "docs", ctx: CallerContext = CALLER, **more: Any) -> OutboxRow:
        """Submit a page and return its message."""
        sent, blobs = Sent(), self.cycle.scraper.blobs
        url = name if name.startswith("http") else f"{SITE}/{name}"
        body = SubmitRequest.model_validate({"url": url, "corpus_name": corpus, **more})
        SubmitJobs(self.cycle.jobs.store, sent, blobs, InMemoryUploads(blobs), recipe=RECIPE)(ctx, body, "r")
        return sent.rows[0]

    def scrape(self, row: OutboxRow) -> list[OutboxRow]:
        """Let the page be read, and return the message that follows."""
        return self.apply(self.cycle.scrape(row))

    def apply(self, *results: Any) -> list[OutboxRow]:
        return [row for change in self.cycle.jobs.changes(*results) for row in change.outbox]

    def finish(self, rows: list[OutboxRow]) -> None:
        """Take what was read until it is done; new jobs of a crawl too."""
        while rows:
            row = rows.pop(0)
            if row.stage == "scraping":
                rows += self.scrape(row)
            elif row.stage == "chunking":
                rows += self.apply(chunked(row.job_id, row.attempt))
            else:
                task = read(EmbedTask, row.payload)
                assert task.withdraws is (task.chunk_count == 0)
                assert self.cycle.jobs.publish(
                    task.target.document_id,
                    task.generation,
                    row.job_id,
                    task.content_sha256,
                    task.chunk_count,
                )
                rows += self.apply(embedded(row.job_id, row.attempt))

    def index(self, name: str, **more: Any) -> Job:
        """Take a page until its job has ended."""
        row = self.submit(name, **more)
        self.finish([row])
        return self.cycle.jobs.job(row.job_id)

    def sweep(self) -> int:
        """Read what is due again, until nothing is; return how many jobs that took."""
        jobs = 0
        for _ in range(5):
            self.execute("UPDATE duplicates SET due_at = now() WHERE due_at IS NOT NULL")
            found = read_again(self.cycle.jobs.store, self.new_id)
            self.finish(admit_all(self.cycle.jobs.store))
            jobs += found
            if not found:
                return jobs
        raise AssertionError("it does not come to an end")

    def new_id(self) -> str:
        self.number += 1
        return f"00000000-0000-7000-8000-{self.number:012d}"

    def execute(self, statement: str) -> list[Any]:
        cursor = self.database.connection().execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def served(self) -> list[str]:
        """Return the paths of the documents that search has."""
        rows = self.execute(
            "SELECT canonical_url FROM documents JOIN jobs ON jobs.id = documents.job_id"
            " WHERE published IS NOT NULL AND documents.chunk_count > 0"
        )
        return sorted(url.removeprefix(f"{SITE}/") for (url,) in rows)


@contextmanager
def site_over(url: str) -> Iterator[Site]:
    """Yield a site whose jobs are on Postgres."""
    with cycle_over(url) as cycle:
        database = Database(url)
        yield Site(cycle, database)
        database.close()


def original(job: Job) -> str | None:
    return job.duplicate_of.url.removeprefix(f"{SITE}/") if job.duplicate_of else None
