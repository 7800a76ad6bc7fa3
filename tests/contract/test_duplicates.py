"""Pages that name another document of their corpus with the same text: search has one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobStatus
from indexmill.contracts.messages import EmbedTask, read
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.admission.admit import admit_all
from indexmill.orchestrator.jobs.rows import OutboxRow
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.sweeper.duplicates import read_again
from indexmill.platform.postgres.database import Database
from tests.support.cycles import RECIPE, Cycle, cycle_over
from tests.support.job_stores import Sent
from tests.support.jobs import CALLER, chunked, embedded
from tests.support.scraper import SITE
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import Redirect
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


@pytest.fixture
def site(request: pytest.FixtureRequest, database_url: str) -> Iterator[Site]:
    with cycle_over("postgres", request) as cycle:
        database = Database(database_url)
        yield Site(cycle, database)
        database.close()


def original(job: Job) -> str | None:
    return job.duplicate_of.url.removeprefix(f"{SITE}/") if job.duplicate_of else None


def test_a_page_with_the_text_of_its_canonical_page_is_a_duplicate(site: Site) -> None:
    site.serve(a=page(canonical="/a"), **{"a?utm_source=x": page(canonical=f"{SITE}/a#top")})
    first = site.index("a")
    again = site.index("a?utm_source=x")
    assert (first.duplicate_of, original(again)) == (None, "a")
    assert again.status is JobStatus.DONE
    assert again.chunk_count == 0
    assert again.duplicate_of is not None
    assert again.duplicate_of.document_id == first.document_id
    assert again.document_id != first.document_id
    assert "another document" in again.user_message
    assert site.served() == ["a"]
    assert original(site.index("a?utm_source=x")) == "a"
    assert site.sweep() == 0


def test_a_page_that_redirects_to_a_published_page_is_a_duplicate(site: Site) -> None:
    site.serve(old=Redirect(f"{SITE}/new"), new=page(), older=Redirect(f"{SITE}/old"))
    site.index("new")
    assert original(site.index("old")) == "new"
    assert original(site.index("older")) == "new"
    assert site.served() == ["new"]


@pytest.mark.parametrize(
    "canonical", ["https://other.example/a", "/missing", "http://10.0.0.1/", "http://[", ""]
)
def test_a_canonical_page_that_is_not_published_counts_for_nothing(site: Site, canonical: str) -> None:
    site.cycle.scraper.fetcher.pages["https://other.example/a"] = page()
    site.serve(b=page(canonical=canonical))
    site.index("https://other.example/a")
    assert site.index("missing").status is JobStatus.FAILED
    assert site.index("b").duplicate_of is None
    assert "b" in site.served()


def test_a_canonical_page_with_other_text_counts_for_nothing(site: Site) -> None:
    """All pages of a site name its first one; page 2 of a list names page 1."""
    site.serve(home=page("Welcome to the harbour."))
    site.serve(**{f"p{at}": page(f"Ships of page {at}.", "/home" if at < 3 else "/p1") for at in range(4)})
    for name in ("home", "p0", "p1", "p2", "p3"):
        assert site.index(name).duplicate_of is None
    assert site.served() == ["home", "p0", "p1", "p2", "p3"]
    assert site.sweep() == 0


def test_another_corpus_and_another_caller_count_for_nothing(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("a", corpus="others")
    row = site.submit("a", ctx=CallerContext("somebody"))
    site.finish([row])
    assert site.index("b").duplicate_of is None


def test_what_was_published_before_is_taken_away(site: Site) -> None:
    site.serve(a=page(), b=page("Text of its own."))
    site.index("a")
    site.index("b")
    site.serve(b=page(canonical="/a"))
    row = site.submit("b")
    (message,) = site.scrape(row)
    assert (message.stage, read(EmbedTask, message.payload).chunks) == ("embedding", [])
    assert site.served() == ["a", "b"], "until that is done in one transaction"
    site.finish([message])
    job = site.cycle.jobs.job(row.job_id)
    assert (job.status, original(job)) == (JobStatus.DONE, "a")
    assert site.served() == ["a"]
    assert site.sweep() == 0


def test_an_unchanged_page_that_redirects_now_is_found(site: Site) -> None:
    site.serve(a=page(), b=page())
    site.index("a")
    site.index("b")
    site.serve(b=Redirect(f"{SITE}/a"))
    assert original(site.index("b")) == "a"
    assert site.served() == ["a"]


@pytest.mark.parametrize("together", [False, True])
def test_the_order_in_which_they_arrive_does_not_matter(site: Site, together: bool) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    if together:
        rows = [site.scrape(site.submit(name))[0] for name in ("b", "a")]
        chunks = [site.apply(chunked(row.job_id))[0] for row in rows]
        site.finish(chunks)
    else:
        site.index("b")
        site.index("a")
    assert site.served() == ["a", "b"]
    asked = list(site.cycle.scraper.fetcher.requested)
    assert site.sweep() == 1
    assert site.served() == ["a"]
    assert site.cycle.scraper.fetcher.requested == asked, "its text is known"
    newest = site.cycle.jobs.find()[0]
    assert (newest.url, original(newest)) == (f"{SITE}/b", "a")
    assert newest.replay_of is not None


@pytest.mark.parametrize("together", [False, True])
def test_of_two_pages_that_name_each_other_one_is_left(site: Site, together: bool) -> None:
    site.serve(a=page(canonical="/b"), b=page(canonical="/a"))
    if together:
        rows = [site.scrape(site.submit(name))[0] for name in ("a", "b")]
        site.finish([site.apply(chunked(row.job_id))[0] for row in rows])
        assert site.served() == ["a", "b"]
        site.sweep()
    else:
        site.index("a")
        assert original(site.index("b")) == "a"
    assert len(site.served()) == 1
    (left,) = site.served()
    for name in ("a", "b", "a"):
        site.index(name)
        site.sweep()
        assert site.served() == [left]


def test_a_duplicate_of_a_duplicate_has_the_same_original(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"), c=page(canonical="/b"))
    for name in "abc":
        site.index(name)
    assert original(site.index("c")) == "a"
    assert site.served() == ["a"]


def test_when_the_original_changes_its_duplicates_are_read_again(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"), c=page(canonical="/a"))
    for name in "abc":
        site.index(name)
    site.serve(a=page("Other text of a."), c=page("Other text of a.", canonical="/a"))
    site.index("a")
    assert site.sweep() == 2
    assert site.served() == ["a", "b"]
    assert {original(job) for job in site.cycle.jobs.find() if job.url.endswith("/c")} == {"a"}
    site.serve(a=page())
    site.index("a")
    site.sweep()
    assert site.served() == ["a", "c"]


def test_when_the_original_goes_its_duplicates_are_read_again(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("a")
    site.index("b")
    del site.cycle.scraper.fetcher.pages[f"{SITE}/a"]
    gone = site.index("a", when_gone="mark_stale")
    assert (gone.status, gone.change) == (JobStatus.FAILED, "removed")
    assert site.sweep() == 1
    assert site.served() == ["a", "b"], "the first one is stale"
    site.serve(a=page())
    site.index("a")
    site.sweep()
    assert site.served() == ["a"]


def test_a_page_that_names_nothing_any_more_is_published(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("a")
    site.index("b")
    site.serve(b=page())
    assert site.index("b").duplicate_of is None
    assert site.served() == ["a", "b"]
    assert site.execute("SELECT count(*) FROM duplicates") == [(0,)]


def test_a_job_in_flight_is_awaited(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("b")
    site.index("a")
    row = site.submit("b", force=False)
    assert read_again(site.cycle.jobs.store, site.new_id) == 0
    assert site.execute("SELECT due_at > now() + interval '9 minutes' FROM duplicates") == [(True,)]
    site.finish([row])
    assert site.sweep() == 1
    assert site.served() == ["a"]


def test_a_page_is_read_again_by_the_sweeper_each_ten_minutes_at_most(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("b")
    site.index("a")
    assert site.sweep() == 1
    site.serve(a=page("Other text."))
    site.index("a")
    assert site.execute("SELECT due_at - read_at FROM duplicates") == [(timedelta(minutes=10),)]


def test_the_links_of_a_duplicate_are_followed_and_the_batch_counts_it(site: Site) -> None:
    site.serve(a=page(links=("/d",)), b=page(canonical="/a", links=("/c",)), c=page("A third page."))
    site.index("a")
    row = site.submit("b", kind="crawl")
    site.finish([row])
    first = site.cycle.jobs.job(row.job_id)
    assert original(first) == "a"
    assert site.served() == ["a", "c"]
    lines = site.cycle.jobs.store.read(lambda tx: tx.count_batch(CALLER.caller_id, first.batch_id or ""))
    assert sum(line.duplicates for line in lines) == 1


def test_a_message_of_an_earlier_attempt_publishes_nothing_of_a_duplicate(site: Site) -> None:
    site.serve(a=page(), b=page())
    row = site.submit("b")
    (chunk,) = site.scrape(row)
    (late,) = site.apply(chunked(row.job_id))
    task = read(EmbedTask, late.payload)
    CancelJob(site.cycle.jobs.store, Sent(), FrozenClock())(CALLER, row.job_id, "not now", "")
    site.index("a")
    site.serve(b=page(canonical="/a"))
    again = site.cycle.jobs.retry(row.job_id)
    site.cycle.jobs.forget_payloads(row.job_id, chunk.stage)
    assert again.outbox
    assert not site.cycle.jobs.publish(task.target.document_id, task.generation, row.job_id)


def test_a_page_without_such_names_costs_no_statement_more(site: Site) -> None:
    """Its own URL as the canonical one is what most pages have."""
    site.serve(a=page(canonical="/a"))
    site.index("a")
    assert site.execute("SELECT count(*) FROM duplicates") == [(0,)]
