"""A retried chunking goes on at once in another function, which may as well never hear of it."""

from __future__ import annotations

import time
from typing import Final

import pytest

from local.faults.promises.violation import Accepted
from local.faults.rules import Rule
from tests.faults.arena import Arena
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e

CHUNKING: Final = "OrchestratorResults/lambda.Invoke@ChunkingApi"
TOLD: Final = "OrchestratorApi/lambda.Invoke@OrchestratorResults"
SLOW_S: Final = 3.0
AT_ONCE_S: Final = 10.0
SWEEPS: Final = "OrchestratorSweeperEveryMinute"


def stopped_in_chunking(arena: Arena, rules: list[Rule]) -> Accepted:
    """Cancel a job while Chunking works on it, and leave only `rules`."""
    slow = Rule(CHUNKING, "delay", times=10**6, seconds=SLOW_S, name="slow-chunking")
    arena.control.arm([slow], trace=True)
    job = arena.submit(arena.page(arena.token("handed")))
    eventually(lambda: arena.statuses([job])[job.job_id] == "chunking", "it is in chunking")
    assert arena.cloud.client.cancel(job.job_id, "a test").failed_stage == "chunking"
    eventually(lambda: not arena.stack.status()["functions"]["OrchestratorResults"]["busy"], "its call ends")
    arena.control.arm([slow, *rules], trace=True)
    return job


def retry(arena: Arena, job: Accepted) -> float:
    """Retry the job; return how many seconds the caller waited."""
    began = time.monotonic()
    assert arena.cloud.client.retry(job.job_id).status == "chunking"
    return time.monotonic() - began


def sweeps(arena: Arena) -> int:
    return int(arena.stack.status()["schedules"][SWEEPS]["fired"])


def test_a_retried_chunking_goes_on_at_once_and_its_caller_does_not_wait_for_it(kept: Arena) -> None:
    job, before = stopped_in_chunking(kept, []), sweeps(kept)
    kept.stack.disturb(SWEEPS, mode="missed", times=1)
    try:
        waited = retry(kept, job)
        eventually(lambda: kept.ended([job]), "the job ends", SLOW_S + AT_ONCE_S)
        assert sweeps(kept) == before
    finally:
        kept.stack.disturb(SWEEPS, mode="ok")
    assert waited < SLOW_S
    assert [each["place"] for each in kept.control.traced()].count(TOLD) == 1


@pytest.mark.parametrize("kind", ["error", "kill_before", "execute_then_error"])
def test_what_nobody_was_told_of_is_the_sweepers(kept: Arena, kind: str) -> None:
    job = stopped_in_chunking(kept, [Rule(TOLD, kind)])  # type: ignore[arg-type]
    with kept.stack.http() as caller:
        caller.post(f"/orchestrator/jobs/{job.job_id}/retry")
    eventually(lambda: kept.control.fired() or None, "the fault")
    kept.cloud.pass_time()
    kept.cloud.sweep()
    eventually(lambda: kept.ended([job]), "the job ends", SLOW_S + AT_ONCE_S)
