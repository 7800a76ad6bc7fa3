"""Chunking that is away costs no job anything; a document that ends its calls costs no other job anything."""

from __future__ import annotations

import pytest

from indexmill.contracts.job import Job
from indexmill.contracts.messages import ChunkCall, ChunkReply
from indexmill.orchestrator.chunk_calls import CALLING_S
from tests.support.jobs import CALLER, TwinChunker, scraped, stored_job
from tests.support.sweeper import Sweeping

POISON = "poison"


def waiting_job(p: Sweeping, job_id: str) -> Job:
    job = stored_job(p.store, CALLER.caller_id, job_id)
    assert job is not None
    return job


def waiting_for_chunking(p: Sweeping, *texts: str) -> list[str]:
    """Return jobs of which one call after the other is still to be made."""
    jobs = [p.submit() for _ in texts]
    p.deliver(*(scraped(job_id, text=text) for job_id, text in zip(jobs, texts, strict=True)))
    assert {p.status(job_id) for job_id in jobs} == {"chunking"}
    return jobs


@pytest.mark.fault("F76")
@pytest.mark.parametrize("outage", [{"away": True}, {"dies_of": ""}], ids=["takes no call", "fails at all"])
def test_an_outage_of_an_hour_fails_no_job(outage: dict[str, object]) -> None:
    p = Sweeping()
    p.chunker.__dict__.update(outage)
    jobs = waiting_for_chunking(p, "one", "two")
    p.tick(60)
    assert {p.status(job_id) for job_id in jobs} == {"chunking"}
    assert {row["tries"] for row in p.jobs.outbox.values()} == {0}
    p.chunker.away, p.chunker.dies_of = False, None
    p.tick()
    assert {p.status(job_id) for job_id in jobs} == {"embedding"}
    assert len(p.embed.bodies) == 2


@pytest.mark.fault("F76")
def test_a_job_tells_that_it_waits_for_chunking_and_an_incident_does_too() -> None:
    p = Sweeping()
    p.chunker.away = True
    (job_id,) = waiting_for_chunking(p, "text")
    for _ in range(3):
        p.tick()
        job = waiting_job(p, job_id)
        assert (job.attempts, job.next_retry_at) == (None, list(p.jobs.outbox.values())[-1]["claimed_until"])
        found = p.view.open_incidents["stage_away"]
        assert found == {"chunking": {"reason": "chunking_unavailable", "waiting": 1}}
    p.chunker.away = False
    p.tick()
    assert waiting_job(p, job_id).next_retry_at is None
    assert p.view.open_incidents["stage_away"] == {}


@pytest.mark.fault("F76")
def test_a_sweep_asks_chunking_that_is_away_once_however_many_wait() -> None:
    p = Sweeping()
    p.chunker.away = True
    for _ in range(8):
        waiting_for_chunking(p, *("x" * 100_000 for _ in range(50)))
    p.clock.tick(60)
    p.chunker.calls.clear()
    assert p.sweep()["leftovers"] == 400
    assert len(p.chunker.calls) == 1
    p.chunker.away = False
    p.tick()
    assert len(p.embed.bodies) == 400


@pytest.mark.fault("F77")
def test_a_document_that_ends_its_calls_fails_alone() -> None:
    p = Sweeping()
    p.chunker.dies_of = POISON
    first, bad, last = waiting_for_chunking(p, "one", POISON, "three")
    p.tick()
    assert [p.status(job_id) for job_id in (first, bad, last)] == ["embedding", "chunking", "embedding"]
    assert waiting_job(p, bad).attempts == 2
    p.tick(2)
    job = waiting_job(p, bad)
    assert job.error is not None
    assert (job.failed_stage, job.error.code, job.error.cause, job.error.attempts) == (
        *("chunking", "max_retries_exceeded", "chunking_unavailable"),
        4,
    )


class Slow(TwinChunker):
    """Ends calls by running out of time."""

    p: Sweeping

    def chunk(self, call: ChunkCall) -> ChunkReply:
        if any(POISON in (item.text or "") for item in call.items):
            self.p.clock.tick(CALLING_S)
        return super().chunk(call)


@pytest.mark.fault("F77")
def test_no_call_is_begun_that_could_outlast_the_sweep() -> None:
    p = Sweeping()
    p.chunker.__class__ = Slow
    assert isinstance(p.chunker, Slow)
    p.chunker.p, p.chunker.dies_of = p, POISON
    jobs = waiting_for_chunking(p, *(POISON for _ in range(3)))
    p.clock.tick(60)
    p.calls.run(p.store.claim(100))
    assert sorted(waiting_job(p, job_id).attempts or 0 for job_id in jobs) == [1, 1, 2]
