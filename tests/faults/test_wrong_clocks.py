"""Clocks that are ten minutes wrong change nothing: what counts is the database's time and the queue's."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from local.faults.rules import parse
from tests.faults.arena import Arena
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e

AHEAD, BEHIND = 600.0, -600.0
FUNCTIONS = (
    "OrchestratorApi",
    "ScraperWorker",
    "OrchestratorResults",
    "EmbeddingWorker",
    "OrchestratorSweeper",
)
SKEWS = {
    "one worker ahead": {"ScraperWorker": AHEAD},
    "one worker behind": {"ScraperWorker": BEHIND},
    "neighbours apart": dict(zip(FUNCTIONS, (AHEAD, BEHIND, AHEAD, BEHIND, AHEAD), strict=True)),
    "and the other way": dict(zip(FUNCTIONS, (BEHIND, AHEAD, BEHIND, AHEAD, BEHIND), strict=True)),
}


def row(arena: Arena, statement: str, *values: Any) -> tuple[Any, ...]:
    with arena.cloud.database() as database:
        return database.execute(statement.encode(), values).fetchone() or ()


@pytest.fixture
def skewed(kept: Arena, request: pytest.FixtureRequest) -> Any:
    kept.control.set_skews(**request.param)
    yield kept
    kept.control.set_skews()


@pytest.mark.fault("F64")
@pytest.mark.parametrize("skewed", SKEWS.values(), ids=SKEWS, indirect=True)
def test_a_job_keeps_true_times_whatever_clocks_say(skewed: Arena) -> None:
    (before,) = row(skewed, "SELECT now()")
    fine, again = skewed.page(skewed.token("clock")), skewed.page(skewed.token("clock"))
    # The second one is tried again, so that waits and the notes of them are part of it.
    skewed.control.arm([parse(f"ScraperWorker/http.get@page:error~{again.token}")])
    missing = replace(skewed.page(skewed.token("clock")), path=f"/pages/no-{again.token}.html")
    lost = skewed.submit(missing, ends="failed")
    jobs = [skewed.submit(fine), skewed.submit(again), lost]
    eventually(lambda: skewed.ended(jobs), "the jobs end")
    skewed.cloud.sweep()
    for job in jobs:
        times: list[datetime] = row(
            skewed,
            """SELECT array_agg(at ORDER BY seq) || jobs.created_at || jobs.updated_at || now()
               FROM job_history AS h JOIN jobs ON jobs.id = h.job_id WHERE job_id = %s GROUP BY jobs.id""",
            job.job_id,
        )[0]
        steps, (created, updated, after) = times[:-3], times[-3:]
        assert steps == sorted(steps)
        assert min(times) >= before - timedelta(seconds=1)
        assert max(times) <= after
        assert created <= updated
    failed, kept, ended = row(
        skewed,
        """SELECT (jobs.error->>'at')::timestamptz, (h.detail->>'at')::timestamptz, ended_at
           FROM jobs JOIN job_history AS h ON h.job_id = jobs.id WHERE id = %s AND to_status = 'failed'""",
        lost.job_id,
    )
    assert failed == kept == ended
