"""Stored content that is lost or corrupt is read again once: from raw content, or from its site."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import Job, JobStatus
from indexmill.contracts.messages import ScrapeTask, read
from indexmill.orchestrator.store.rows import OutboxRow
from tests.support.cycles import PAGE, Cycle, cycle_over
from tests.support.jobs import chunked, failed

pytestmark = pytest.mark.fault("F54")

Damage = Callable[[Cycle], None]
LOST = [ErrorCode.CONTENT_MISSING, ErrorCode.CONTENT_CORRUPT]


def lose(cycle: Cycle) -> None:
    cycle.scraper.blobs.objects.clear()


def corrupt(cycle: Cycle) -> None:
    cycle.scraper.blobs.objects |= dict.fromkeys(cycle.scraper.blobs.objects, b"other")


@pytest.fixture
def cycle(database_url: str) -> Iterator[Cycle]:
    with cycle_over(database_url) as made:
        yield made


def asked(cycle: Cycle) -> int:
    """Return how often the page was requested since the last call."""
    count = cycle.scraper.fetcher.requested.count(PAGE)
    cycle.scraper.fetcher.requested.clear()
    return count


def newest(cycle: Cycle) -> Job:
    return cycle.jobs.find()[0]


@pytest.mark.parametrize("damage", [lose, corrupt])
def test_a_replay_of_lost_content_fetches_the_page_once_and_stores_it(cycle: Cycle, damage: Damage) -> None:
    first = cycle.visit()
    asked(cycle)
    damage(cycle)
    cycle.puts()
    cycle.replay(first.job_id)
    assert (newest(cycle).status, newest(cycle).attempt) == (JobStatus.DONE, 1)
    assert (asked(cycle), cycle.puts()) == (1, 1)
    cycle.replay(first.job_id)
    assert (asked(cycle), cycle.puts()) == (0, 0)


def test_a_page_that_is_gone_as_well_fails_by_what_its_site_says(cycle: Cycle) -> None:
    first = cycle.visit()
    lose(cycle)
    del cycle.scraper.fetcher.pages[PAGE]
    with pytest.raises(ValueError, match="not enough values"):
        cycle.replay(first.job_id)
    error = newest(cycle).error
    assert error is not None
    assert error.code == "http_404"


def test_given_content_that_is_lost_has_no_site(cycle: Cycle) -> None:
    row = cycle.submit(url=None, content={"name": "a.md", "text": "# A\n\nSome words."})
    lose(cycle)
    cycle.jobs.changes(cycle.scrape(row))
    error = cycle.jobs.job(row.job_id).error
    assert error is not None
    assert (error.code, error.stage) == ("content_missing", "scraping")


def started(cycle: Cycle, row: OutboxRow, code: str, stage: str, attempt: int = 1) -> list[OutboxRow]:
    """Report a stage's failure; return the messages that follow."""
    (change,) = cycle.jobs.changes(failed(row.job_id, stage, code, attempt))
    return list(change.outbox)


@pytest.mark.parametrize("code", LOST)
@pytest.mark.parametrize("stage", ["chunking", "embedding"])
def test_lost_text_and_chunks_are_made_again_once(cycle: Cycle, stage: str, code: str) -> None:
    row = cycle.submit()
    cycle.jobs.changes(cycle.scrape(row))
    if stage == "embedding":
        cycle.jobs.changes(chunked(row.job_id))
    asked(cycle)
    (again,) = started(cycle, row, code, stage)
    task = read(ScrapeTask, again.payload)
    assert (again.stage, again.attempt, task.attempt, task.url) == ("scraping", 2, 2, PAGE)
    assert task.stored is not None
    assert cycle.jobs.job(row.job_id).status is JobStatus.SCRAPING
    cycle.publish(again)
    assert cycle.jobs.job(row.job_id).status is JobStatus.DONE
    assert asked(cycle) == 0, "the raw content is there"
    steps = [(attempt, to) for attempt, _, to in cycle.jobs.history(row.job_id)]
    assert steps[-5:] == [(2, "pending"), (2, "scraping"), (2, "chunking"), (2, "embedding"), (2, "done")]


def test_what_is_lost_again_fails_the_job(cycle: Cycle) -> None:
    row = cycle.submit()
    cycle.jobs.changes(cycle.scrape(row))
    (again,) = started(cycle, row, "content_missing", "chunking")
    cycle.jobs.changes(cycle.scrape(again))
    assert started(cycle, row, "content_missing", "chunking", 2) == []
    job = cycle.jobs.job(row.job_id)
    assert job.error is not None
    assert (job.status, job.error.code, job.attempt) == (JobStatus.FAILED, "content_missing", 2)


def test_raw_content_that_is_lost_with_the_text_is_fetched(cycle: Cycle) -> None:
    row = cycle.submit()
    cycle.jobs.changes(cycle.scrape(row))
    lose(cycle)
    asked(cycle)
    (again,) = started(cycle, row, "content_missing", "chunking")
    cycle.publish(again)
    assert (cycle.jobs.job(row.job_id).status, asked(cycle)) == (JobStatus.DONE, 1)


def test_jobs_that_depend_on_it_wait_for_the_second_attempt(cycle: Cycle) -> None:
    row = cycle.submit()
    waiting = cycle.jobs.send(url=f"{PAGE}?2", depends_on=[row.job_id]).job_id
    cycle.jobs.changes(cycle.scrape(row))
    (again,) = started(cycle, row, "content_missing", "chunking")
    assert cycle.jobs.job(waiting).status is JobStatus.PENDING
    cycle.jobs.changes(cycle.scrape(again))
    started(cycle, row, "content_missing", "chunking", 2)
    assert cycle.jobs.job(waiting).status is JobStatus.FAILED


def test_another_failure_gives_no_other_attempt(cycle: Cycle) -> None:
    row = cycle.submit()
    cycle.jobs.changes(cycle.scrape(row))
    assert started(cycle, row, "too_many_chunks", "chunking") == []
    assert cycle.jobs.job(row.job_id).status is JobStatus.FAILED
