"""Cancel, retry, replay, compare and batches, from the request to the messages that follow."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import CancelRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.messages import ChunkTask, EmbedTask, ScrapeTask, StageResult, read
from tests.support.jobs import CALLER, URL, embedded, failed, scraped
from tests.support.orchestrator import OrchestratorHarness

OTHER = CallerContext(caller_id="somebody-else")
REF = BlobRef(key="raw/00/0", size=3, sha256="0" * 64)


def refusal(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(CallerError) as refused:
        call()
    return refused.value.code, refused.value.http_status


def scraped_from_site(job_id: str, text: str = "# Title\n\nSome words.", digest: str = "1") -> StageResult:
    """Return a scrape whose raw content was kept."""
    result = scraped(job_id, text=text)
    assert result.document is not None
    kept = {"raw_ref": REF, "charset": "utf-8", "content_sha256": digest * 64, "extractor": "1"}
    return result.model_copy(update={"document": result.document.model_copy(update=kept)})


def finish(
    harness: OrchestratorHarness, job_id: str, text: str = "# Title\n\nSome words.", digest: str = "1"
) -> None:
    harness.deliver(scraped_from_site(job_id, text, digest))
    harness.deliver(embedded(job_id))


@pytest.mark.parametrize("job_id", ["x", "", str(uuid.uuid4())], ids=["short", "empty", "unknown"])
def test_what_is_no_job_of_the_caller_is_not_found(harness: OrchestratorHarness, job_id: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: harness.cancel(job_id),
        lambda: harness.retry_jobs.one(CALLER, job_id),
        lambda: harness.replay(job_id),
        lambda: harness.replay_jobs.diff(CALLER, job_id),
        lambda: harness.read_jobs.batch(CALLER, job_id),
    ]
    assert {refusal(call) for call in calls} == {("not_found", 404)}


def test_another_callers_job_is_not_found(harness: OrchestratorHarness) -> None:
    job_id = harness.submit()
    harness.deliver(failed(job_id))
    calls: list[Callable[[], object]] = [
        lambda: harness.cancel(job_id, OTHER),
        lambda: harness.retry_jobs.one(OTHER, job_id),
        lambda: harness.replay_jobs.diff(OTHER, job_id),
    ]
    assert {refusal(call) for call in calls} == {("not_found", 404)}
    assert harness.job(job_id).attempt == 1


@pytest.mark.parametrize(("reason", "kept"), [(" a\nb\x7f ", "a b"), ("ok é 你", "ok é 你")])
def test_a_reason_is_kept_as_one_line(reason: str, kept: str) -> None:
    assert CancelRequest(reason=reason).reason == kept


@pytest.mark.parametrize("reason", ["", "  ", "\u200b\n", "x" * 501])
def test_a_cancel_without_a_reason_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        CancelRequest(reason=reason)


def test_a_retried_job_sends_its_stages_message_again(harness: OrchestratorHarness) -> None:
    job_id = harness.submit()
    harness.deliver(scraped(job_id))
    harness.deliver(failed(job_id, "embedding", "max_retries_exceeded"))
    assert harness.retry_jobs.one(CALLER, job_id).status == "embedding"
    first, again = (read(EmbedTask, body) for body in harness.embed.bodies)
    assert (again.attempt, again.chunks, again.generation > first.generation) == (2, first.chunks, True)


def test_a_retried_chunking_goes_to_its_queue_at_once(harness: OrchestratorHarness) -> None:
    harness.chunking_paused = True
    job_id = harness.submit()
    harness.deliver(scraped(job_id))
    harness.deliver(failed(job_id, "chunking", "max_retries_exceeded"))
    assert harness.retry_jobs.one(CALLER, job_id).status == "chunking"
    first, again = (read(ChunkTask, body) for body in harness.chunk.bodies)
    assert (again.attempt, again.text, again.message_id != first.message_id) == (2, first.text, True)
    harness.chunk_all()
    assert harness.status(job_id) == "embedding"


def test_a_bulk_retry_gets_past_what_another_try_cannot_help(harness: OrchestratorHarness) -> None:
    helped = harness.submit(f"{URL}/0")
    harness.cancel(helped)
    lost = []
    for number in range(1, 4):
        harness.clock.tick(1)
        lost.append(harness.submit(f"{URL}/{number}"))
        harness.deliver(failed(lost[-1], "scraping", "http_404"))
    report = harness.retry_all(limit=1)
    assert (report.retried, report.more) == ([helped], False)
    assert [job.job_id for job in report.skipped] == lost[::-1]


def test_a_bulk_retry_takes_what_matches_and_what_can_be_helped(harness: OrchestratorHarness) -> None:
    transient, permanent, stopped, busy = (harness.submit(f"{URL}/{at}") for at in range(4))
    harness.deliver(failed(transient, code="max_retries_exceeded"), failed(permanent, code="http_404"))
    harness.cancel(stopped)
    harness.cancel(busy)
    in_flight = harness.submit(f"{URL}/3")
    report = harness.retry_all(failed_stage="scraping")
    assert (set(report.retried), report.more) == ({transient, stopped}, False)
    assert {job.job_id for job in report.skipped} == {permanent, busy}
    assert any(in_flight in job.reason for job in report.skipped)
    assert harness.retry_all(code="http_404", corpus_name="docs").retried == [permanent]
    assert harness.retry_all(batch_id="none").retried == []


def test_a_bulk_retry_says_when_there_is_more(harness: OrchestratorHarness) -> None:
    for job_id in [harness.submit() for _ in range(3)]:
        harness.cancel(job_id)
        harness.clock.tick(1)
    report = harness.retry_all(limit=2)
    assert (len(report.retried), report.more) == (2, True)
    assert harness.retry_all().more is False


def test_a_bulk_retry_takes_what_depends_on_each_other_in_one_go(harness: OrchestratorHarness) -> None:
    first = harness.submit(f"{URL}/1")
    harness.clock.tick(1)
    second = harness.send(url=f"{URL}/2", depends_on=[first]).job_id
    harness.clock.tick(1)
    third = harness.send(url=f"{URL}/3", depends_on=[second]).job_id
    harness.cancel(first)
    assert harness.job(third).status == "failed"
    assert harness.retry_all().retried == [first, second, third]


def test_a_replay_is_a_job_of_its_own_in_front(harness: OrchestratorHarness) -> None:
    job_id = harness.submit(URL)
    assert refusal(lambda: harness.replay(job_id)) == ("invalid_transition", 409)
    finish(harness, job_id)
    again = harness.replay(job_id)
    assert again.job_id != job_id
    assert (again.replay_of, again.priority, again.url, again.corpus_name) == (job_id, 100, URL, "docs")
    task = read(ScrapeTask, harness.scrape.bodies[-1])
    assert (task.job_id, task.url, task.stored, task.request_id) == (again.job_id, URL, None, "req-2")
    assert harness.replay(job_id).job_id != again.job_id


def test_a_replay_of_stored_content_names_it(harness: OrchestratorHarness) -> None:
    job_id = harness.submit(URL)
    finish(harness, job_id)
    again = harness.replay(job_id, source="stored")
    stored = read(ScrapeTask, harness.scrape.bodies[-1]).stored
    assert stored is not None
    assert (stored.ref, stored.content_type, stored.charset) == (REF, "text/html", "utf-8")
    harness.deliver(failed(again.job_id, code="content_missing"))
    assert harness.retry_jobs.one(CALLER, again.job_id).status == "scraping"
    assert read(ScrapeTask, harness.scrape.bodies[-1]).stored == stored


def test_a_replay_of_content_that_was_not_kept_is_refused(harness: OrchestratorHarness) -> None:
    job_id = harness.submit(URL)
    harness.deliver(failed(job_id))
    assert refusal(lambda: harness.replay(job_id, source="stored")) == ("invalid_transition", 409)
    assert harness.replay(job_id).replay_of == job_id


def test_a_replay_is_compared_with_its_original(harness: OrchestratorHarness) -> None:
    job_id = harness.submit(URL)
    finish(harness, job_id)
    same = harness.replay(job_id).job_id
    assert harness.replay_jobs.diff(CALLER, same).same is None
    finish(harness, same)
    report = harness.replay_jobs.diff(CALLER, same)
    assert (report.same, report.replay_of, report.status) == (True, job_id, "done")
    assert {part.verdict for part in report.parts} == {"same"}
    other = harness.replay(job_id).job_id
    finish(harness, other, "Something else.", "2")
    changed = harness.replay_jobs.diff(CALLER, other)
    reported = [(part.part, part.verdict, part.why) for part in changed.parts]
    assert reported == [
        ("content", "changed", "The site serves something else."),
        ("text", "changed", "The content changed."),
        ("chunks", "changed", "The text changed."),
        ("model", "same", None),
    ]
    assert changed.same is False
    assert refusal(lambda: harness.replay_jobs.diff(CALLER, job_id)) == ("invalid_transition", 409)


def test_a_batch_is_counted(harness: OrchestratorHarness) -> None:
    batch = harness.send(urls=[f"{URL}/{at}" for at in range(3)], corpus_name="docs")
    assert batch.job_ids is not None
    assert batch.batch_id is not None
    finish(harness, batch.job_ids[0])
    harness.deliver(failed(batch.job_ids[1], code="http_404"))
    found = harness.read_jobs.batch(CALLER, batch.batch_id)
    assert (found.total, found.done, found.failed, found.finished) == (3, 1, 1, False)
    assert found.by_status == {
        "pending": 0, "scraping": 1, "chunking": 0, "embedding": 0, "done": 1, "failed": 1,
    }  # fmt: skip
    assert found.failed_codes == {"http_404": 1}
    harness.cancel(batch.job_ids[2])
    assert harness.read_jobs.batch(CALLER, batch.batch_id).finished
    assert refusal(lambda: harness.read_jobs.batch(OTHER, batch.batch_id or "")) == ("not_found", 404)
