"""Processes that get SIGTERM in the middle of a batch."""

from __future__ import annotations

import os
import signal

import pytest

from local.faults.rules import Rule, parse
from tests.faults.arena import Arena
from tests.support.processes import family, still_running
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e


def hit_process(arena: Arena, rule: Rule) -> int | None:
    """Return the process that the fault hit, once it did."""
    pids = [each["pid"] for each in arena.control.fired() if each["rule"] == rule.text]
    return int(pids[-1]) if pids else None


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    "place",
    ["ScraperWorker/http.get@page", "OrchestratorResults/postgres.commit", "EmbeddingWorker/postgres.commit"],
)
def test_a_process_that_is_terminated_in_the_middle_leaves_no_half_state(kept: Arena, place: str) -> None:
    page = kept.page(kept.token("term"))
    rule = parse(f"{place}:delay=3~{page.token}")
    kept.control.arm([rule])
    jobs = [kept.submit(page), kept.submit(kept.page(kept.token("term")))]
    pid = eventually(lambda: hit_process(kept, rule), "it is in the middle")
    recorded = family(pid)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not still_running(recorded), "the process ends")
    eventually(lambda: kept.ended(jobs), "the jobs end")
