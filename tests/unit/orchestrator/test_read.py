"""Additions of GET to a job: progress of long work, Retry-After, ETag."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexmill.contracts.job import Job
from indexmill.orchestrator.queries.jobs import ReadJobs, poll_after_s
from indexmill.platform.http.app import tagged
from indexmill.platform.progress import LONG_CHUNKS, WorkProgress
from tests.support.jobs import CALLER, chunked, embedded, failed, scraped, stored_job
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.state_table import InMemoryProgress

WORK = WorkProgress(attempt=1, chunks_total=257, chunks_done=256, bytes=2_000)


def embedding(chunk_count: int = LONG_CHUNKS + 1) -> tuple[OrchestratorHarness, InMemoryProgress, str]:
    pipeline = OrchestratorHarness()
    pipeline.chunking_paused = True
    job_id = pipeline.submit()
    pipeline.deliver(scraped(job_id), chunked(job_id, chunk_count=chunk_count))
    assert pipeline.status(job_id) == "embedding"
    return pipeline, InMemoryProgress(pipeline.clock), job_id


def shown(pipeline: OrchestratorHarness, board: InMemoryProgress, job_id: str) -> dict[str, int]:
    found: dict[str, int] = ReadJobs(pipeline.store, board).get(CALLER, job_id).model_dump()["progress"]
    return found


def test_long_work_shows_how_far_it_is() -> None:
    pipeline, board, job_id = embedding()
    assert shown(pipeline, board, job_id) == {"stage": 3, "of": 3}
    board.put(job_id, WORK)
    inner = {"chunks_total": 257, "chunks_done": 256, "bytes": 2_000}
    assert shown(pipeline, board, job_id) == {"stage": 3, "of": 3, **inner}
    board.unavailable = True
    assert shown(pipeline, board, job_id) == {"stage": 3, "of": 3}


def test_progress_of_another_attempt_is_not_shown() -> None:
    pipeline, board, job_id = embedding()
    board.put(job_id, WorkProgress(2, 257, 256, 2_000))
    assert shown(pipeline, board, job_id) == {"stage": 3, "of": 3}


def test_progress_ends_with_the_stage() -> None:
    pipeline, board, job_id = embedding()
    board.put(job_id, WORK)
    pipeline.deliver(embedded(job_id, chunk_count=257))
    assert shown(pipeline, board, job_id) == {"stage": 3, "of": 3}


def test_progress_drives_no_state() -> None:
    pipeline, board, job_id = embedding()
    board.put(job_id, WorkProgress(1, 257, 257, 2_000))
    assert ReadJobs(pipeline.store, board).get(CALLER, job_id).status == "embedding"


def test_short_work_costs_no_look_at_the_board() -> None:
    pipeline, board, job_id = embedding(1)
    shown(pipeline, board, job_id)
    assert board.reads == 0


def some_job(pipeline: OrchestratorHarness) -> Job:
    job = stored_job(pipeline.store, CALLER.caller_id, pipeline.submit())
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("quiet_s", "pause_s"), [(0, 1), (2.9, 1), (3, 2), (8, 3), (10, 5), (15, 10), (9e3, 10)]
)
def test_the_longer_nothing_happened_the_longer_the_pause(quiet_s: float, pause_s: int) -> None:
    pipeline = OrchestratorHarness()
    job = some_job(pipeline)
    assert poll_after_s(job, job.updated_at + timedelta(seconds=quiet_s)) == pause_s


def test_an_ended_job_needs_no_more_polls() -> None:
    pipeline = OrchestratorHarness()
    job_id = pipeline.submit()
    pipeline.deliver(failed(job_id))
    job = stored_job(pipeline.store, CALLER.caller_id, job_id)
    assert job is not None
    assert poll_after_s(job, job.updated_at) is None


def test_what_did_not_change_is_not_sent_again() -> None:
    first = tagged(b'{"a": 1}', None, {"Retry-After": "1"})
    tag = first.headers["etag"]
    assert (first.status_code, first.body) == (200, b'{"a": 1}')
    for known in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
        again = tagged(b'{"a": 1}', known, {"Retry-After": "1"})
        assert (again.status_code, again.body, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["retry-after"] == "1"
    for known in ('"x"', "", tag[:-2] + '"'):
        assert tagged(b'{"a": 1}', known, {}).status_code == 200
    assert tagged(b'{"a": 2}', tag, {}).status_code == 200
