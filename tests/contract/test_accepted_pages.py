"""Pages that look like a log-in or a "not found" page and are read: one suite over every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.contracts.http_actions import ReplayRequest
from indexmill.contracts.job import Job, SubmitRequest
from indexmill.contracts.messages import ScrapeTask, read
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.orchestrator.submission.idempotency import request_digest
from indexmill.scraper.adapters.process_isolation import ProcessIsolation
from indexmill.scraper.extract.content import Kind, RawContent, Unusable, Wanted, extract, is_risky
from indexmill.scraper.ports import Fetched
from tests.support.bad_pages import BAD, document
from tests.support.crawler import Crawler, page, sitemap
from tests.support.cycles import PAGE, Cycle, cycle_over
from tests.support.job_stores import Sent
from tests.support.jobs import CALLER
from tests.support.scraper import SITE

LOGIN = document(
    "<title>Sign in</title><h1>Sign in</h1>"
    "<form><label>Password</label><input type=password><button>Sign in</button></form><p>Welcome back.</p>"
)
MISSING = document("<title>Page not found</title><h1>Page not found</h1><p>There is no such page here.</p>")
BOTH = ["login_required", "soft_404"]


@pytest.fixture
def cycle(database_url: str) -> Iterator[Cycle]:
    with cycle_over(database_url) as made:
        yield made


def serve(cycle: Cycle, html: str) -> None:
    cycle.scraper.fetcher.pages[PAGE] = html


def ended(cycle: Cycle, row: OutboxRow) -> Job:
    """Take a job from its message to its end, whatever that is."""
    result = cycle.scrape(row)
    if result.failure is not None:
        cycle.jobs.changes(result)
    else:
        cycle.publish(row)
    return cycle.jobs.job(row.job_id)


def outcome(job: Job) -> str:
    return job.error.code if job.error is not None else job.status.value


def asked(row: OutboxRow) -> list[str] | None:
    accept = read(ScrapeTask, row.payload).accept
    return None if accept is None else list(accept)


@pytest.mark.parametrize(("html", "code"), [(LOGIN, "login_required"), (MISSING, "soft_404")])
def test_a_page_is_read_despite_the_doubts_that_its_submit_accepts(
    cycle: Cycle, html: str, code: str
) -> None:
    serve(cycle, html)
    (other,) = set(BOTH) - {code}
    assert outcome(ended(cycle, cycle.submit())) == code
    assert outcome(ended(cycle, cycle.submit(accept=[other]))) == code
    job = ended(cycle, cycle.submit(accept=[code]))
    assert (outcome(job), job.change, job.chunk_count) == ("done", "new", 1)


@pytest.mark.parametrize(("code", "html"), [each for each in BAD.values() if each[0] not in BOTH])
def test_no_other_code_is_accepted(code: str, html: str) -> None:
    wanted = Wanted(login_required=True, soft_404=True)
    with pytest.raises(Unusable) as refused:
        extract(RawContent(document(html).encode(), Kind.HTML, "utf-8", wanted))
    assert refused.value.code == code


@pytest.mark.parametrize("other", ["robots_noindex", "empty_content", "needs_javascript", "http_404", "", 1])
def test_other_codes_are_refused_in_a_submit(other: object) -> None:
    with pytest.raises(ValidationError):
        SubmitRequest.model_validate({"url": PAGE, "accept": [other]})
    with pytest.raises(ValidationError):
        SubmitRequest.model_validate({"url": PAGE, "accept": other})


def test_a_page_that_asks_not_to_be_indexed_is_not_accepted(cycle: Cycle) -> None:
    serve(cycle, LOGIN.replace("<title>", '<meta name="robots" content="noindex"><title>'))
    assert outcome(ended(cycle, cycle.submit(accept=BOTH))) == "robots_noindex"


def test_a_page_that_another_process_reads_is_accepted_too() -> None:
    html = MISSING.replace("<p>", "<!--" + " " * 600_000 + "--><p>").encode()
    content = RawContent(html, Kind.HTML, "utf-8", Wanted(soft_404=True))
    assert is_risky(content)
    assert "no such page" in ProcessIsolation().extract(content, timeout_s=30.0).markdown


def test_retries_and_replays_accept_what_their_job_did(cycle: Cycle) -> None:
    serve(cycle, LOGIN)
    row = cycle.submit(accept=["soft_404"])
    job = ended(cycle, row)
    assert outcome(job) == "login_required"
    for kept in (True, False):
        if not kept:
            cycle.jobs.forget_payloads(job.job_id, "scraping")
        (again,) = cycle.jobs.retry(job.job_id).outbox
        assert asked(again) == ["soft_404"]
        assert outcome(ended(cycle, again)) == "login_required"
    sent = Sent()
    ReplayJobs(cycle.jobs.store, sent).replay(CALLER, job.job_id, ReplayRequest(), "r")
    (replay,) = sent.rows
    assert asked(replay) == ["soft_404"]
    ended(cycle, replay)
    cycle.jobs.forget_payloads(replay.job_id, "scraping")
    assert asked(cycle.jobs.retry(replay.job_id).outbox[0]) == ["soft_404"]


def test_what_was_accepted_before_is_unchanged_only_where_it_is_accepted_again(cycle: Cycle) -> None:
    serve(cycle, LOGIN)
    assert outcome(ended(cycle, cycle.submit(accept=BOTH))) == "done"
    again = ended(cycle, cycle.submit(accept=BOTH[::-1]))
    assert (outcome(again), again.unchanged_because) == ("done", "same_content")
    assert outcome(ended(cycle, cycle.submit())) == "login_required"
    assert outcome(ended(cycle, cycle.submit(max_age=3_600))) == "login_required"
    less = ended(cycle, cycle.submit(accept=["login_required"]))
    assert (outcome(less), less.change, less.unchanged) == ("done", "same", None)


def test_a_job_that_accepts_other_pages_is_no_duplicate(cycle: Cycle) -> None:
    first = cycle.jobs.send(url=PAGE)
    accepting = cycle.jobs.send(url=PAGE, accept=BOTH)
    assert (accepting.deduplicated, accepting.job_id == first.job_id) == (False, False)
    again = cycle.jobs.send(url=PAGE)
    assert (again.deduplicated, again.job_id) == (True, first.job_id)


def test_the_order_of_what_is_accepted_does_not_matter(cycle: Cycle) -> None:
    def digest(**request: Any) -> str | None:
        job_id = cycle.jobs.send(url=PAGE, force=True, **request).job_id
        original = cycle.jobs.store.read(lambda tx: tx.original(CALLER.caller_id, job_id))
        assert original is not None
        return original.payload_digest

    assert digest(accept=BOTH) == digest(accept=BOTH[::-1]) != digest(accept=BOTH[:1])
    assert digest() == digest(accept=[])
    same, reversed_, other = (
        request_digest(SubmitRequest(url=PAGE, accept=accept)) for accept in (BOTH, BOTH[::-1], None)
    )
    assert same == reversed_ != other


def test_a_crawl_and_a_sitemap_pass_it_on_to_their_pages(cycle: Cycle) -> None:
    crawler = Crawler(cycle)
    crawler.serve({"/": page("/in"), "/in": LOGIN, "/gone": MISSING})
    crawler.start(accept=BOTH)
    assert [outcome(job) for job in crawler.run()] == ["done", "done"]
    cycle.scraper.fetcher.pages[f"{SITE}/map.xml"] = Fetched(
        f"{SITE}/map.xml", 200, "application/xml", None, sitemap("/gone").encode()
    )
    crawler.start(f"{SITE}/map.xml", kind="sitemap", accept=["soft_404"])
    assert [outcome(job) for job in crawler.run()] == ["done", "done"]
