"""A page that did not change is not processed again: one suite over every store, with the scrape worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from indexmill.contracts.errors import CallerError
from indexmill.contracts.job import Job, JobStatus, SubmitRequest
from indexmill.contracts.messages import EmbedTask, ScrapeTask, read
from indexmill.orchestrator.actions.replay import ReplayJobs, text_diff
from indexmill.orchestrator.store.results import Verdict
from indexmill.scraper.extract.content import _DECLARED, EXTRACTORS, Kind
from indexmill.scraper.ports import Fetched, Validators
from tests.support.books import book, chapter
from tests.support.cycles import PAGE, RECIPE, Cycle, cycle_over
from tests.support.job_stores import Sent, embed_task
from tests.support.jobs import CALLER, chunked, failed

TEXT = "<title>T</title><main><p>Some words.</p></main>"
DAY_S = 86_400


@pytest.fixture
def cycle(database_url: str) -> Iterator[Cycle]:
    with cycle_over(database_url) as made:
        yield made


def serve(cycle: Cycle, text: str, etag: str | None = None) -> None:
    """Let the site answer with a page, with an ETag or without."""
    validators = Validators(etag=etag, url=PAGE)
    cycle.scraper.fetcher.pages[PAGE] = Fetched(
        PAGE, 200, "text/html", "utf-8", text.encode(), validators=validators
    )


def asked(cycle: Cycle) -> int:
    """Return how often the page was requested since the last call."""
    count = cycle.scraper.fetcher.requested.count(PAGE)
    cycle.scraper.fetcher.requested.clear()
    return count


def how(job: Job) -> tuple[str, str | None]:
    """Return what the fetch found, and why nothing was processed."""
    assert job.status is JobStatus.DONE
    assert (job.unchanged is True) == (job.unchanged_because is not None)
    return job.change or "", job.unchanged_because


@pytest.mark.shows("P036", "P055")
@pytest.mark.parametrize(("etag", "because"), [(None, "same_content"), ('"1"', "not_modified")])
def test_an_unchanged_page_is_done_after_its_fetch(cycle: Cycle, etag: str | None, because: str) -> None:
    serve(cycle, TEXT, etag)
    first = cycle.visit()
    assert how(first) == ("new", None)
    assert cycle.puts() == 1
    for _ in range(3):
        again = cycle.visit()
        assert how(again) == ("same", because)
        assert (again.title, again.chunk_count) == (first.title, first.chunk_count) == ("T", 1)
        assert cycle.puts() == 0
        stages = [to for _, _, to in cycle.jobs.history(again.job_id)]
        assert stages == ["pending", "scraping", "done"]
        assert [event for event, _ in cycle.jobs.audit(again.job_id)] == ["job_submitted", "job_completed"]


def test_what_could_not_be_read_is_noted_in_the_job(cycle: Cycle) -> None:
    body = book([chapter("<p>Some words.</p>"), chapter("<img src='a.png'/>")])
    cycle.scraper.fetcher.pages[PAGE] = Fetched(PAGE, 200, "application/epub+zip", None, body)
    noted = ["Chapters without text: 1 of 2 (c2.xhtml)"]
    assert cycle.visit().notes == noted
    assert cycle.visit().notes == noted
    serve(cycle, TEXT)
    assert cycle.visit().notes is None


def test_long_text_of_an_unchanged_page_is_not_stored_again(cycle: Cycle) -> None:
    cycle.scraper.inline_text_bytes = 5
    cycle.rebuild()
    cycle.visit()
    assert cycle.puts() == 2
    assert how(cycle.visit())[0] == "same"
    assert cycle.puts() == 0


@pytest.mark.parametrize(
    "changed", [{"model": "other"}, {"dimension": 8}], ids=lambda changed: next(iter(changed))
)
def test_what_another_model_made_is_processed_again(cycle: Cycle, changed: Mapping[str, Any]) -> None:
    cycle.visit()
    assert how(cycle.visit(recipe={**RECIPE, **changed})) == ("same", None)
    assert how(cycle.visit()) == ("same", "same_content")


def test_what_another_chunker_made_stays_until_the_page_changes(
    cycle: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("tests.support.jobs.CHUNKER", "1")
        cycle.visit()
    assert how(cycle.visit()) == ("same", "same_content")
    serve(cycle, TEXT.replace("Some", "Other"), '"2"')
    assert how(cycle.visit()) == ("changed", None)


def test_what_another_extractor_read_is_processed_again(
    cycle: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle.visit()
    raise_extractor(monkeypatch, Kind.HTML)
    assert how(cycle.visit()) == ("same", None)
    assert how(cycle.visit()) == ("same", "same_content")


def raise_extractor(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """Let the scraper be of a release that reads a kind of content otherwise."""
    raised = {**EXTRACTORS, kind: "next"}
    for module in ("scrape", "revisit"):
        monkeypatch.setattr(f"indexmill.scraper.{module}.EXTRACTORS", raised)


@pytest.mark.parametrize(("raised", "again"), [(Kind.PDF, "same_content"), (Kind.TEXT, None)])
def test_an_extractor_that_is_raised_is_that_of_its_kind(
    cycle: Cycle, monkeypatch: pytest.MonkeyPatch, raised: Kind, again: str | None
) -> None:
    cycle.scraper.fetcher.pages[PAGE] = Fetched(PAGE, 200, "text/plain", "utf-8", b"Some words.")
    cycle.visit()
    raise_extractor(monkeypatch, raised)
    assert how(cycle.visit()) == ("same", again)


def test_the_same_bytes_read_otherwise_are_no_change_of_the_page(
    cycle: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before_xhtml(before)
        serve_xhtml(cycle, "Some words.")
        assert how(cycle.visit()) == ("new", None)
    assert how(cycle.visit()) == ("same", None)
    assert text_of(cycle) == "# Title\n\nSome words."
    assert how(cycle.visit()) == ("same", "not_modified")
    serve_xhtml(cycle, "Other words.")
    assert how(cycle.visit()) == ("changed", None)


def test_content_that_an_older_release_stored_keeps_no_page_from_being_fetched(
    cycle: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored as HTML, and read as that again: no 304 may confirm it."""
    with monkeypatch.context() as before:
        before_xhtml(before)
        serve_xhtml(cycle, "Some words.")
        cycle.visit()
    assert how(cycle.visit(max_age=DAY_S)) == ("same", None)
    assert text_of(cycle) == "# Title"
    assert how(cycle.visit()) == ("same", None)
    assert text_of(cycle) == "# Title\n\nSome words."


def before_xhtml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scraper be of the release that read XHTML as HTML, and had one version for all kinds."""
    for module in ("scrape", "revisit"):
        monkeypatch.setattr(f"indexmill.scraper.{module}.EXTRACTORS", dict.fromkeys(Kind, "2"))
    monkeypatch.setitem(_DECLARED, "application/xhtml+xml", Kind.HTML)


def serve_xhtml(cycle: Cycle, words: str) -> None:
    """Let the site answer with a page whose words an HTML parser takes for a script."""
    body = f"<html><body><h1>Title</h1><script/><p>{words}</p></body></html>".encode()
    validators = Validators(etag=f'"{words}"', url=PAGE)
    page = Fetched(PAGE, 200, "application/xhtml+xml", None, body, validators=validators)
    cycle.scraper.fetcher.pages[PAGE] = page


def text_of(cycle: Cycle) -> str | None:
    """Return the text of the newest document."""
    return cycle.texts[-1]


def test_force_and_replays_process_an_unchanged_page(cycle: Cycle) -> None:
    serve(cycle, TEXT, '"1"')
    first = cycle.visit()
    assert how(cycle.visit(force=True)) == ("same", None)
    cycle.replay(first.job_id)
    assert how(cycle.visit()) == ("same", "not_modified")


@pytest.mark.fault("F69")
@pytest.mark.parametrize("lacking", ["digests", "keeps_text"])
def test_what_a_release_before_published_is_processed_once(cycle: Cycle, lacking: str) -> None:
    setattr(cycle, lacking, False)
    cycle.visit()
    setattr(cycle, lacking, True)
    assert how(cycle.visit()) == ("same", None)
    assert how(cycle.visit()) == ("same", "same_content")


def test_the_digest_reaches_the_index(cycle: Cycle) -> None:
    row = cycle.submit()
    result = cycle.scrape(row)
    cycle.jobs.changes(result)
    task: EmbedTask = embed_task(cycle.jobs.changes(chunked(row.job_id))[0].outbox)
    assert task.content_sha256 == result.document.content_sha256  # type: ignore[attr-defined]


def test_a_batch_of_both_results_keeps_the_digest(cycle: Cycle) -> None:
    row = cycle.submit()
    result = cycle.scrape(row)
    _, change = cycle.jobs.changes(result, chunked(row.job_id))
    assert embed_task(change.outbox).content_sha256 == result.document.content_sha256  # type: ignore[attr-defined]


def test_a_version_published_meanwhile_is_not_left_in_place(cycle: Cycle) -> None:
    """The page was B for a while, and is A again: B is published when the job that found A reports."""
    cycle.visit()
    row = cycle.submit()
    found = cycle.scrape(row)
    serve(cycle, "<main><p>Other words.</p></main>")
    assert how(cycle.visit(force=True)) == ("changed", None)
    (change,) = cycle.jobs.changes(found)
    assert change.verdict is Verdict.REDISPATCH
    (again,) = change.outbox
    assert read(ScrapeTask, again.payload).known is None
    serve(cycle, TEXT)
    cycle.publish(again)
    assert how(cycle.jobs.job(row.job_id)) == ("same", None)


def test_older_content_that_is_still_to_be_published_is_waited_for_by_no_short_cut(cycle: Cycle) -> None:
    cycle.visit()
    serve(cycle, "<main><p>Other words.</p></main>")
    forced = cycle.submit(force=True)
    cycle.jobs.changes(cycle.scrape(forced))
    older = embed_task(cycle.jobs.changes(chunked(forced.job_id))[0].outbox)
    serve(cycle, "<main><p>Some words.</p></main>")
    row = cycle.submit()
    (change,) = cycle.jobs.changes(cycle.scrape(row))
    assert change.verdict is Verdict.REDISPATCH
    cycle.publish(change.outbox[0])
    target = older.target.document_id
    assert not cycle.jobs.publish(target, older.generation, forced.job_id, older.content_sha256)


@pytest.mark.shows("P034")
def test_a_recent_fetch_answers_without_a_request(cycle: Cycle) -> None:
    cycle.visit()
    asked(cycle)
    cycle.scraper.clock.tick(DAY_S)
    assert how(cycle.visit(max_age=DAY_S)) == ("same", "max_age")
    assert asked(cycle) == 0
    cycle.scraper.clock.tick(1)
    # An answer without a request is no fetch: it does not renew the age.
    assert how(cycle.visit(max_age=DAY_S)) == ("same", "same_content")
    assert asked(cycle) == 1
    assert how(cycle.visit(max_age=DAY_S)) == ("same", "max_age")
    assert how(cycle.visit(max_age=0)) == ("same", "same_content")
    assert asked(cycle) == 1


@pytest.mark.shows("P058")
def test_a_recent_fetch_is_read_again_for_another_model(cycle: Cycle) -> None:
    cycle.visit()
    asked(cycle)
    other = {**RECIPE, "model": "other"}
    assert how(cycle.visit(recipe=other, max_age=DAY_S)) == ("same", None)
    assert asked(cycle) == 0


@pytest.mark.fault("F54")
def test_a_recent_fetch_whose_content_is_lost_is_fetched_again(cycle: Cycle) -> None:
    cycle.visit()
    asked(cycle)
    cycle.scraper.blobs.objects.clear()
    other = {**RECIPE, "model": "other"}
    assert how(cycle.visit(recipe=other, max_age=DAY_S)) == ("same", None)
    assert asked(cycle) == 1


def test_content_that_is_old_is_fetched_whole_and_stored_again(cycle: Cycle) -> None:
    serve(cycle, TEXT, '"1"')
    cycle.visit()
    cycle.puts()
    cycle.scraper.clock.tick(cycle.scraper.known_for.total_seconds())
    assert how(cycle.visit(max_age=366 * DAY_S)) == ("same", "same_content")
    assert cycle.puts() == 1
    assert how(cycle.visit()) == ("same", "not_modified")


@pytest.mark.shows("P036")
def test_a_change_is_one_of_the_text_and_not_of_the_bytes(cycle: Cycle) -> None:
    cycle.visit()
    serve(cycle, "<!-- 2 --><main><p>Some words.</p></main>")
    assert how(cycle.visit()) == ("same", None)
    serve(cycle, "<main><p>Other words.</p></main>")
    assert how(cycle.visit()) == ("changed", None)


@pytest.mark.shows("P036")
def test_a_change_is_shown_line_by_line_also_across_an_unchanged_visit(cycle: Cycle) -> None:
    jobs = ReplayJobs(cycle.jobs.store, Sent())
    serve(cycle, "<main><p>Same words.</p><p>Old words.</p></main>")
    first = cycle.visit()
    with pytest.raises(CallerError, match="no earlier version"):
        jobs.diff(CALLER, first.job_id)
    unchanged = cycle.visit()
    found = jobs.diff(CALLER, unchanged.job_id)
    assert (found.compared_with, found.replay_of, found.same, found.text_diff) == (
        first.job_id,
        None,
        True,
        None,
    )
    serve(cycle, "<main><p>Same words.</p><p>New words.</p></main>")
    found = jobs.diff(CALLER, cycle.visit().job_id)
    assert found.compared_with == unchanged.job_id
    assert {part.part: part.verdict for part in found.parts}["text"] == "changed"
    assert found.text_diff is not None
    assert [line for line in found.text_diff.splitlines()[2:] if line[0] in "+-"] == [
        "-Old words.",
        "+New words.",
    ]
    cycle.jobs.forget_payloads(first.job_id, "chunking")
    assert jobs.diff(CALLER, cycle.visit(force=True).job_id).text_diff is None


def test_a_long_diff_is_cut_and_a_costly_one_not_made() -> None:
    one, other = ("\n".join(f"{word} {at}" for at in range(2_000)) for word in ("one", "other"))
    assert len(text_diff(one, other) or "") == 16_000
    assert text_diff(one + "\nmore", other) is None


@pytest.mark.shows("P036", "X18")
@pytest.mark.parametrize("code", ["http_404", "http_410"])
def test_a_page_that_is_gone_was_there_before(cycle: Cycle, code: str) -> None:
    never = cycle.submit()
    cycle.jobs.changes(failed(never.job_id, code=code))
    assert cycle.jobs.job(never.job_id).change is None
    cycle.visit()
    row = cycle.submit()
    cycle.jobs.changes(failed(row.job_id, code=code))
    job = cycle.jobs.job(row.job_id)
    assert (job.status, job.change) == (JobStatus.FAILED, "removed")
    retried = cycle.jobs.retry(row.job_id)
    assert retried.job.change is None
    cycle.publish(retried.outbox[0])
    assert how(cycle.jobs.job(row.job_id)) == ("same", None)


def stale(cycle: Cycle, request: pytest.FixtureRequest, job: Job) -> bool:
    """Return whether search shows the job's document as stale."""
    with psycopg.connect(request.getfixturevalue("database_url")) as rows:
        statement = "SELECT stale_since IS NOT NULL FROM documents WHERE document_id = %s"
        (found,) = rows.execute(statement, (job.document_id,)).fetchall()
    return bool(found[0])


@pytest.mark.shows("X18")
def test_a_gone_page_makes_its_document_stale_when_that_is_wanted(
    cycle: Cycle, request: pytest.FixtureRequest
) -> None:
    first = cycle.visit()
    for when_gone, expected in ((None, False), ("keep", False), ("mark_stale", True)):
        row = cycle.submit(when_gone=when_gone)
        cycle.jobs.changes(failed(row.job_id, code="http_410"))
        assert stale(cycle, request, first) is expected
    assert how(cycle.visit()) == ("same", "same_content")
    assert not stale(cycle, request, first)
    other = cycle.submit(when_gone="mark_stale")
    cycle.jobs.changes(failed(other.job_id, code="http_403"))
    assert not stale(cycle, request, first)


@pytest.mark.shows("X18")
def test_a_version_published_meanwhile_is_not_stale(cycle: Cycle, request: pytest.FixtureRequest) -> None:
    cycle.visit()
    row = cycle.submit(when_gone="mark_stale")
    later = cycle.visit(force=True)
    cycle.jobs.changes(failed(row.job_id, code="http_404"))
    assert not stale(cycle, request, later)


@pytest.mark.parametrize("wrong", [-1, 366 * DAY_S + 1, 1.5, "60", True])
def test_max_age_is_a_bounded_integer(wrong: object) -> None:
    with pytest.raises(ValidationError):
        SubmitRequest.model_validate({"url": PAGE, "max_age": wrong})


def test_force_and_max_age_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="without force"):
        SubmitRequest.model_validate({"url": PAGE, "max_age": 60, "force": True})
    assert SubmitRequest.model_validate({"url": PAGE, "max_age": 0, "force": True}).force
