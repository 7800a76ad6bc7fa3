"""Duplicates, and pages that turn out to be duplicates: they are read again when their originals change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.admission.admit import admit_all
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.sweeper.sweep import read_again
from indexmill.platform.security.urls import DomainRates
from tests.support.duplicates import Site, original, page, site_over
from tests.support.scraper import SITE
from tests.twins.fetcher import Redirect


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    with site_over(database_url) as opened:
        yield opened


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


def test_pages_that_are_read_again_wait_for_their_turn_at_the_site(site: Site) -> None:
    site.serve(a=page(), **dict.fromkeys("bcdef", page(canonical="/a")))
    for name in "abcdef":
        site.index(name)
    site.serve(a=page("Other text."))
    site.index("a")
    slow = JobLimits(rates=DomainRates.parse("*=0.1:2"))
    assert read_again(JobStore(site.database, slow), site.new_id) == 5
    assert site.execute("SELECT count(*) FROM jobs WHERE blocked_by = 'domain'") == [(3,)]


def test_a_page_is_read_again_by_the_sweeper_each_ten_minutes_at_most(site: Site) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("b")
    site.index("a")
    assert site.sweep() == 1
    site.serve(a=page("Other text."))
    site.index("a")
    assert site.execute("SELECT due_at - read_at FROM duplicates") == [(timedelta(minutes=10),)]


@pytest.mark.parametrize("read_by_the_sweeper", [False, True])
def test_an_unchanged_duplicate_is_published_when_its_original_changes(
    site: Site, read_by_the_sweeper: bool
) -> None:
    site.serve(a=page(), b=page())
    site.index("a")
    site.index("b")
    site.serve(b=Redirect(f"{SITE}/a"))
    assert original(site.index("b")) == "a"
    site.serve(a=page("Other text."), b=page())
    site.index("a")
    if read_by_the_sweeper:
        assert site.sweep() == 1
    else:
        assert site.index("b").unchanged is None
    assert site.served() == ["a", "b"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_duplicate_that_was_published_returns(site: Site, gone: bool) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("b")
    site.index("a")
    assert site.sweep() == 1
    assert site.served() == ["a"]
    if gone:
        del site.cycle.scraper.fetcher.pages[f"{SITE}/a"]
        site.index("a", when_gone="mark_stale")
    else:
        site.serve(a=page("Other text."))
        site.index("a")
    assert site.sweep() == 1
    assert site.served() == ["a", "b"]


@pytest.mark.parametrize("one_batch", [True, False])
@pytest.mark.parametrize("names", ["ab", "abc", "acb", "abcd", "dcba"])
def test_of_pages_that_are_read_again_together_one_is_left(site: Site, names: str, one_batch: bool) -> None:
    """Each names the next one."""
    pages = {
        name: page(canonical=f"/{following}")
        for name, following in zip(names, names[1:] + names[:1], strict=True)
    }
    site.serve(**pages)
    read = [site.cycle.scrape(site.submit(name)) for name in names]
    site.finish(site.apply(*read))
    assert site.served() == sorted(names)
    assert read_again(site.cycle.jobs.store, site.new_id) == len(names)
    rows = admit_all(site.cycle.jobs.store)
    assert len(rows) == len(names)
    rows.sort(key=lambda row: site.cycle.jobs.job(row.job_id).url)
    read = [site.cycle.scrape(row) for row in rows]
    batches = [read] if one_batch else [[result] for result in read]
    site.finish([row for batch in batches for row in site.apply(*batch)])
    assert len(site.served()) == 1
    site.sweep()
    assert len(site.served()) == 1
    assert site.sweep() == 0


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
@pytest.mark.parametrize("cycle", [False, True])
def test_of_a_chain_one_page_is_left_in_any_order(site: Site, order: str, cycle: bool) -> None:
    site.serve(a=page(canonical="/b"), b=page(canonical="/c"), c=page(canonical="/a" if cycle else None))
    for name in order:
        site.index(name)
    site.sweep()
    assert len(site.served()) == 1
    assert cycle or site.served() == ["c"]
    site.sweep()
    for name in order:
        site.index(name)
        site.sweep()
        assert len(site.served()) == 1


@pytest.mark.parametrize("failure", [None, PermanentError("http_503", "Every try failed")])
def test_a_duplicate_that_cannot_be_read_is_not_asked_for_again_and_again(
    site: Site, failure: PermanentError | None
) -> None:
    site.serve(a=page(), b=page(canonical="/a"))
    site.index("a")
    site.index("b")
    pages = site.cycle.scraper.fetcher.pages
    del pages[f"{SITE}/a"], pages[f"{SITE}/b"]
    if failure is not None:
        site.serve(b=failure)
    site.index("a", when_gone="mark_stale")
    assert read_again(site.cycle.jobs.store, site.new_id) == 1
    (row,) = admit_all(site.cycle.jobs.store)
    site.finish([row])
    assert site.cycle.jobs.job(row.job_id).status is JobStatus.FAILED
    due = site.execute("SELECT due_at > now() + interval '23 hours' FROM duplicates")
    assert due == [(True if failure else None,)]
    site.serve(b=page(canonical="/a"))
    if failure is not None:
        site.sweep()
    else:
        site.index("b")
    assert site.served() == ["a", "b"], "the first one is stale"
