"""Cancel, retry, replay, compare and batches, from the request to the messages that follow."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_verbs import CancelRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.messages import ChunkTask, EmbedTask, ScrapeTask, StageResult, read
from tests.support.jobs import CALLER, URL, embedded, failed, scraped
from tests.unit.orchestrator.verbs import Mill

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


def finish(mill: Mill, job_id: str, text: str = "# Title\n\nSome words.", digest: str = "1") -> None:
    mill.deliver(scraped_from_site(job_id, text, digest))
    mill.deliver(embedded(job_id))


@pytest.mark.parametrize("job_id", ["x", "", str(uuid.uuid4())], ids=["short", "empty", "unknown"])
def test_what_is_no_job_of_the_caller_is_not_found(mill: Mill, job_id: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: mill.cancel(job_id),
        lambda: mill.retry_jobs.one(CALLER, job_id),
        lambda: mill.replay(job_id),
        lambda: mill.replays.diff(CALLER, job_id),
        lambda: mill.read.batch(CALLER, job_id),
    ]
    assert {refusal(call) for call in calls} == {("not_found", 404)}


def test_somebody_elses_job_is_not_found(mill: Mill) -> None:
    job_id = mill.submit()
    mill.deliver(failed(job_id))
    calls: list[Callable[[], object]] = [
        lambda: mill.cancel(job_id, OTHER),
        lambda: mill.retry_jobs.one(OTHER, job_id),
        lambda: mill.replays.diff(OTHER, job_id),
    ]
    assert {refusal(call) for call in calls} == {("not_found", 404)}
    assert mill.job(job_id).attempt == 1


@pytest.mark.parametrize(("reason", "kept"), [(" a\nb\x7f ", "a b"), ("ok é 你", "ok é 你")])
def test_a_reason_is_kept_as_one_line(reason: str, kept: str) -> None:
    assert CancelRequest(reason=reason).reason == kept


@pytest.mark.parametrize("reason", ["", "  ", "\u200b\n", "x" * 501])
def test_a_cancel_without_a_reason_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        CancelRequest(reason=reason)


def test_a_retried_job_sends_its_stages_message_again(mill: Mill) -> None:
    job_id = mill.submit()
    mill.deliver(scraped(job_id))
    mill.deliver(failed(job_id, "embedding", "max_retries_exceeded"))
    assert mill.retry_jobs.one(CALLER, job_id).status == "embedding"
    first, again = (read(EmbedTask, body) for body in mill.embed.bodies)
    assert (again.attempt, again.chunks, again.generation > first.generation) == (2, first.chunks, True)


def test_a_retried_chunking_goes_to_its_queue_at_once(mill: Mill) -> None:
    mill.chunking_paused = True
    job_id = mill.submit()
    mill.deliver(scraped(job_id))
    mill.deliver(failed(job_id, "chunking", "max_retries_exceeded"))
    assert mill.retry_jobs.one(CALLER, job_id).status == "chunking"
    first, again = (read(ChunkTask, body) for body in mill.chunk.bodies)
    assert (again.attempt, again.text, again.message_id != first.message_id) == (2, first.text, True)
    mill.chunk_all()
    assert mill.status(job_id) == "embedding"


def test_a_bulk_retry_gets_past_what_another_try_cannot_help(mill: Mill) -> None:
    helped = mill.submit(f"{URL}/0")
    mill.cancel(helped)
    lost = []
    for number in range(1, 4):
        mill.clock.tick(1)
        lost.append(mill.submit(f"{URL}/{number}"))
        mill.deliver(failed(lost[-1], "scraping", "http_404"))
    report = mill.retry_all(limit=1)
    assert (report.retried, report.more) == ([helped], False)
    assert [job.job_id for job in report.skipped] == lost[::-1]


def test_a_bulk_retry_takes_what_matches_and_what_can_be_helped(mill: Mill) -> None:
    transient, permanent, stopped, busy = (mill.submit(f"{URL}/{at}") for at in range(4))
    mill.deliver(failed(transient, code="max_retries_exceeded"), failed(permanent, code="http_404"))
    mill.cancel(stopped)
    mill.cancel(busy)
    at_work = mill.submit(f"{URL}/3")
    report = mill.retry_all(failed_stage="scraping")
    assert (set(report.retried), report.more) == ({transient, stopped}, False)
    assert {job.job_id for job in report.skipped} == {permanent, busy}
    assert any(at_work in job.reason for job in report.skipped)
    assert mill.retry_all(code="http_404", corpus_name="docs").retried == [permanent]
    assert mill.retry_all(batch_id="none").retried == []


def test_a_bulk_retry_says_when_there_is_more(mill: Mill) -> None:
    for job_id in [mill.submit() for _ in range(3)]:
        mill.cancel(job_id)
        mill.clock.tick(1)
    report = mill.retry_all(limit=2)
    assert (len(report.retried), report.more) == (2, True)
    assert mill.retry_all().more is False


def test_a_bulk_retry_takes_what_depends_on_each_other_in_one_go(mill: Mill) -> None:
    first = mill.submit(f"{URL}/1")
    mill.clock.tick(1)
    second = mill.send(url=f"{URL}/2", depends_on=[first]).job_id
    mill.clock.tick(1)
    third = mill.send(url=f"{URL}/3", depends_on=[second]).job_id
    mill.cancel(first)
    assert mill.job(third).status == "failed"
    assert mill.retry_all().retried == [first, second, third]


def test_a_replay_is_a_job_of_its_own_in_front(mill: Mill) -> None:
    job_id = mill.submit(URL)
    assert refusal(lambda: mill.replay(job_id)) == ("invalid_transition", 409)
    finish(mill, job_id)
    again = mill.replay(job_id)
    assert again.job_id != job_id
    assert (again.replay_of, again.priority, again.url, again.corpus_name) == (job_id, 100, URL, "docs")
    task = read(ScrapeTask, mill.scrape.bodies[-1])
    assert (task.job_id, task.url, task.stored, task.request_id) == (again.job_id, URL, None, "req-2")
    assert mill.replay(job_id).job_id != again.job_id


def test_a_replay_of_stored_content_names_it(mill: Mill) -> None:
    job_id = mill.submit(URL)
    finish(mill, job_id)
    again = mill.replay(job_id, source="stored")
    stored = read(ScrapeTask, mill.scrape.bodies[-1]).stored
    assert stored is not None
    assert (stored.ref, stored.content_type, stored.charset) == (REF, "text/html", "utf-8")
    mill.deliver(failed(again.job_id, code="content_missing"))
    assert mill.retry_jobs.one(CALLER, again.job_id).status == "scraping"
    assert read(ScrapeTask, mill.scrape.bodies[-1]).stored == stored


def test_a_replay_of_content_that_was_not_kept_is_refused(mill: Mill) -> None:
    job_id = mill.submit(URL)
    mill.deliver(failed(job_id))
    assert refusal(lambda: mill.replay(job_id, source="stored")) == ("invalid_transition", 409)
    assert mill.replay(job_id).replay_of == job_id


def test_a_replay_is_compared_with_its_original(mill: Mill) -> None:
    job_id = mill.submit(URL)
    finish(mill, job_id)
    same = mill.replay(job_id).job_id
    assert mill.replays.diff(CALLER, same).same is None
    finish(mill, same)
    report = mill.replays.diff(CALLER, same)
    assert (report.same, report.replay_of, report.status) == (True, job_id, "done")
    assert {part.verdict for part in report.parts} == {"same"}
    other = mill.replay(job_id).job_id
    finish(mill, other, "Something else.", "2")
    changed = mill.replays.diff(CALLER, other)
    told = [(part.part, part.verdict, part.why) for part in changed.parts]
    assert told == [
        ("content", "changed", "The site serves something else."),
        ("text", "changed", "The content changed."),
        ("chunks", "changed", "The text changed."),
        ("model", "same", None),
    ]
    assert changed.same is False
    assert refusal(lambda: mill.replays.diff(CALLER, job_id)) == ("invalid_transition", 409)


def test_a_batch_is_counted(mill: Mill) -> None:
    batch = mill.send(urls=[f"{URL}/{at}" for at in range(3)], corpus_name="docs")
    assert batch.job_ids is not None
    assert batch.batch_id is not None
    finish(mill, batch.job_ids[0])
    mill.deliver(failed(batch.job_ids[1], code="http_404"))
    found = mill.read.batch(CALLER, batch.batch_id)
    assert (found.total, found.done, found.failed, found.finished) == (3, 1, 1, False)
    assert found.by_status == {
        "pending": 0, "scraping": 1, "chunking": 0, "embedding": 0, "done": 1, "failed": 1,
    }  # fmt: skip
    assert found.failed_codes == {"http_404": 1}
    mill.cancel(batch.job_ids[2])
    assert mill.read.batch(CALLER, batch.batch_id).finished
    assert refusal(lambda: mill.read.batch(OTHER, batch.batch_id or "")) == ("not_found", 404)
