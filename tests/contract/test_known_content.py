"""Raw content that is known is not stored again: one suite over every store, with the scrape worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.contracts.messages import ChunkTask, ScrapeResult, ScrapeTask, read
from indexmill.orchestrator.store.rows import OutboxRow
from tests.support.cycles import OTHER, PAGE, Cycle, cycle_over
from tests.support.jobs import failed, new_job


@pytest.fixture
def cycle(database_url: str) -> Iterator[Cycle]:
    with cycle_over(database_url) as made:
        yield made


def known(row: OutboxRow) -> bool:
    return read(ScrapeTask, row.payload).known is not None


def test_a_new_page_is_one_write_and_an_unchanged_one_none(cycle: Cycle) -> None:
    cycle.index()
    assert cycle.puts() == 1
    for _ in range(3):
        cycle.index()
    assert cycle.puts() == 0


def test_another_page_and_a_changed_page_are_stored(cycle: Cycle) -> None:
    cycle.index()
    cycle.index(OTHER)
    assert cycle.puts() == 2
    cycle.scraper.fetcher.pages[PAGE] = "<main><p>Other words.</p></main>"
    cycle.index()
    assert cycle.puts() == 1
    cycle.index()
    assert cycle.puts() == 0


def test_content_is_stored_again_after_half_of_its_lifetime_however_often_it_was_found(cycle: Cycle) -> None:
    third = cycle.scraper.known_for / 3
    written = []
    for _ in range(8):
        cycle.index()
        written.append(cycle.puts())
        cycle.scraper.clock.tick(third.total_seconds())
    assert written == [1, 0, 0, 1, 0, 0, 1, 0]


def test_a_replay_finds_what_was_not_stored_again(cycle: Cycle) -> None:
    cycle.index()
    unchanged = cycle.index()
    asked = list(cycle.scraper.fetcher.requested)
    cycle.puts()
    cycle.replay(unchanged)
    assert (cycle.puts(), cycle.scraper.fetcher.requested) == (0, asked)
    cycle.scraper.clock.tick(cycle.scraper.known_for.total_seconds())
    cycle.replay(unchanged)
    assert (cycle.puts(), cycle.scraper.fetcher.requested) == (1, asked)


def test_a_page_indexed_across_two_lifetimes_can_still_be_replayed(cycle: Cycle) -> None:
    """The bucket deletes what was written more than a lifetime ago; the worker trusts half of that."""
    lifetime, written_at = 2 * cycle.scraper.known_for, cycle.scraper.clock.now()
    cycle.index()
    for _ in range(4):  # each 0.6 lifetimes: twice past a whole one
        cycle.scraper.clock.tick(0.6 * lifetime.total_seconds())
        cycle.puts()
        job_id = cycle.index()
        written_at = cycle.scraper.clock.now() if cycle.puts() else written_at
        assert cycle.scraper.clock.now() - written_at < lifetime
    asked = list(cycle.scraper.fetcher.requested)
    cycle.scraper.clock.tick(0.4 * lifetime.total_seconds())
    if cycle.scraper.clock.now() - written_at >= lifetime:
        cycle.scraper.blobs.objects.clear()
    cycle.replay(job_id)
    assert cycle.scraper.fetcher.requested == asked


def test_only_the_content_of_the_published_version_is_known(cycle: Cycle) -> None:
    row = cycle.first(new_job(PAGE))
    cycle.jobs.apply(cycle.scrape(row), failed(row.job_id, "chunking"))
    assert not known(cycle.first(new_job(PAGE, forced=True)))
    cycle.index(OTHER)
    assert known(cycle.first(new_job(OTHER)))
    assert not known(cycle.first(new_job(OTHER, corpus="another")))


def test_a_message_with_known_content_is_otherwise_the_same(cycle: Cycle) -> None:
    cycle.index()
    new = new_job(PAGE)
    task = read(ScrapeTask, cycle.first(new).payload)
    assert task.known is not None
    assert (task.known.ref.size, task.known.stored_at) == (31, cycle.scraper.clock.now())
    assert task.model_copy(update={"known": None, "published": False}) == read(ScrapeTask, new.first.payload)


def test_a_retry_stores_again_since_its_job_may_have_failed_for_lost_content(cycle: Cycle) -> None:
    cycle.index()
    row = cycle.first(new_job(PAGE))
    assert known(row)
    cycle.jobs.apply(failed(row.job_id, code="max_retries_exceeded"))
    (again,) = cycle.jobs.retry(row.job_id).outbox
    assert not known(again)
    assert read(ScrapeTask, again.payload).published
    cycle.puts()
    cycle.publish(again)
    assert cycle.puts() == 1


@pytest.mark.fault("F69")
def test_content_whose_time_the_release_before_did_not_note_is_not_known(cycle: Cycle) -> None:
    row = cycle.first(new_job(PAGE))
    result = cycle.scrape(row)
    assert isinstance(result, ScrapeResult)
    assert result.document is not None
    before = result.document.model_copy(update={"raw_stored_at": None})
    cycle.scrape = lambda _: result.model_copy(update={"document": before})  # type: ignore[method-assign]
    cycle.publish(row)
    assert not known(cycle.first(new_job(PAGE)))


@pytest.mark.shows("P049")
def test_a_page_that_is_processed_again_keeps_the_chunker_while_its_text_is_the_same(
    cycle: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, pages = "<main><p>Some words.</p></main>", cycle.scraper.fetcher.pages
    pages[PAGE] = text

    def chunker() -> str | None:
        row = cycle.submit(recipe=None)
        ((chunking,),) = [change.outbox for change in cycle.jobs.changes(cycle.scrape(row))]
        cycle.jobs.changes(failed(row.job_id, "chunking"))
        return read(ChunkTask, chunking.payload).chunker

    with monkeypatch.context() as before:
        before.setattr("tests.support.jobs.CHUNKER", "1")
        cycle.visit()
    assert chunker() == "1"
    pages[PAGE] = text.replace("<main>", "<main><!-- other bytes -->")
    assert chunker() == "1"
    pages[PAGE] = "<title>Other</title>" + text
    assert chunker() is None
    pages[PAGE] = "<main><p>Other words.</p></main>"
    assert chunker() is None
