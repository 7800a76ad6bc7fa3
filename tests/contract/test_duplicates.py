"""Pages that name another document of their corpus with the same text: search has one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import JobStatus
from indexmill.contracts.messages import EmbedTask, read
from indexmill.orchestrator.actions.cancel import CancelJob
from tests.support.duplicates import Site, original, page, site_over
from tests.support.job_stores import Sent
from tests.support.jobs import CALLER, chunked
from tests.support.scraper import SITE
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import Redirect


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    with site_over(database_url) as opened:
        yield opened


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


@pytest.mark.parametrize(("together", "kept"), [(False, True), (True, True), (False, False)])
def test_the_order_in_which_they_arrive_does_not_matter(site: Site, together: bool, kept: bool) -> None:
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
    if kept:
        site.execute("UPDATE jobs SET raw_ref = raw_ref || jsonb_build_object('stored_at', now())")
    assert site.sweep() == 1
    assert site.served() == ["a"]
    assert (site.cycle.scraper.fetcher.requested == asked) is kept, "its text is known"
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


def test_a_page_that_names_nothing_any_more_is_published(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("a")
    site.index("b")
    site.serve(b=page())
    assert site.index("b").duplicate_of is None
    assert site.served() == ["a", "b"]
    assert site.execute("SELECT count(*) FROM duplicates") == [(0,)]


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
