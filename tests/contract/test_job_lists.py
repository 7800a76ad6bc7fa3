"""Counts of a caller's jobs, holds on jobs in flight, and ids of requests, on Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import psycopg
import pytest

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.job import Waiting
from indexmill.orchestrator import wiring
from indexmill.orchestrator.queries import jobs as queries
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.queries.limits import ReadHealth
from indexmill.orchestrator.settings import OrchestratorApiSettings
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.platform.http import app
from indexmill.platform.limits.enforcer import InMaintenance
from indexmill.platform.postgres.database import Connection, Database
from indexmill.platform.time import SystemClock
from tests.support.function_env import environment
from tests.support.job_stores import canceled, retried
from tests.support.jobs import CALLER, applied, failed, new_job, scraped, submitted
from tests.support.limits import process
from tests.twins.state_table import InMemoryLimits, InMemoryProgress

OTHER = "somebody-else-00"


@dataclass
class Now:
    """The time, moved by hand."""

    ahead: timedelta = timedelta()
    started: datetime = field(default_factory=SystemClock().now)

    def now(self) -> datetime:
        return self.started + self.ahead

    def monotonic(self) -> float:
        return self.ahead.total_seconds()


@pytest.fixture
def store(database_url: str) -> Iterator[JobStore]:
    database = Database(database_url)
    yield JobStore(database)
    database.close()


@pytest.fixture
def clock() -> Now:
    return Now()


@pytest.fixture
def read(store: JobStore, clock: Now) -> ReadJobs:
    return ReadJobs(store, InMemoryProgress(clock), clock=clock)


@pytest.fixture
def operator(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def several(store: JobStore) -> list[str]:
    """Submit four jobs: two that failed in different stages, one in chunking, one in scraping."""
    jobs = [new_job(f"https://example.com/{n}") for n in range(4)]
    submitted(store, *jobs)
    ids = [job.job_id for job in jobs]
    applied(store, failed(ids[0]), scraped(ids[1]), scraped(ids[2]))
    applied(store, failed(ids[1], "chunking", "empty_content"))
    return ids


def test_a_callers_jobs_are_counted_by_status_and_failed_stage(store: JobStore, read: ReadJobs) -> None:
    several(store)
    submitted(store, new_job(caller_id=OTHER))
    counts = read.counts(CALLER)
    assert counts.by_status == {
        **{"pending": 0, "scraping": 1, "chunking": 1},
        **{"embedding": 0, "done": 0, "failed": 2},
    }
    assert (counts.total, counts.failed_stages) == (4, {"scraping": 1, "chunking": 1})
    assert counts.capped == []


def test_counting_ends_where_it_would_cost_too_much(
    store: JobStore, read: ReadJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MOST_COUNTED", 2)
    submitted(store, *(new_job(f"https://example.com/{n}") for n in range(5)))
    counts = read.counts(CALLER)
    assert (counts.by_status["scraping"], counts.capped) == (2, ["scraping"])


@pytest.mark.parametrize("stage", ["chunking", "*"])
def test_a_job_in_flight_says_that_its_stage_is_paused(
    store: JobStore, read: ReadJobs, clock: Now, operator: Connection, stage: str
) -> None:
    held = several(store)[2]
    operator.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES (%s, 'a test', 'me')", (stage,))
    clock.ahead = timedelta(seconds=10)
    # The stage works until the sweeper has seen it.
    assert read.get(CALLER, held).waiting is None
    clock.ahead = timedelta()
    operator.execute("INSERT INTO incidents (kind, subject) VALUES ('paused', %s)", (stage,))
    assert read.get(CALLER, held).waiting is None
    clock.ahead = timedelta(seconds=10)
    assert read.get(CALLER, held).waiting == Waiting(reason="paused")
    listed = {job.job_id: job.waiting for job in read.list(JobFilter(CALLER.caller_id), None).jobs}
    assert listed[held] == Waiting(reason="paused")
    assert read.events_after(CALLER, held, 0).job.waiting == Waiting(reason="paused")


def test_a_job_of_another_stage_is_not_held(
    store: JobStore, read: ReadJobs, clock: Now, operator: Connection
) -> None:
    ids = several(store)
    operator.execute("INSERT INTO incidents (kind, subject) VALUES ('paused', 'chunking')")
    operator.execute("INSERT INTO incidents (kind, subject) VALUES ('breaker_open', 'embedding')")
    clock.ahead = timedelta(seconds=10)
    assert [read.get(CALLER, each).waiting for each in (ids[0], ids[3])] == [None, None]


def test_a_job_in_flight_says_that_a_breaker_of_its_stage_is_open(
    store: JobStore, read: ReadJobs, clock: Now, operator: Connection
) -> None:
    (job,) = jobs = [new_job()]
    submitted(store, *jobs)
    operator.execute("UPDATE jobs SET status = 'embedding'")
    operator.execute("INSERT INTO incidents (kind, subject) VALUES ('breaker_open', 'index')")
    clock.ahead = timedelta(seconds=10)
    assert read.get(CALLER, job.job_id).waiting == Waiting(reason="breaker_open")
    operator.execute("UPDATE incidents SET closed_at = now()")
    assert read.get(CALLER, job.job_id).waiting is None


def test_health_says_which_stages_work_and_is_read_again_after_a_while(
    store: JobStore, clock: Now, operator: Connection
) -> None:
    health = ReadHealth(store, process(InMemoryLimits(), clock).active, clock, release="r-7")
    assert (health().status, health().release) == ("ok", "r-7")
    operator.execute("INSERT INTO incidents (kind, subject) VALUES ('paused', 'chunking')")
    operator.execute("INSERT INTO incidents (kind, subject) VALUES ('breaker_open', 'index')")
    assert health().status == "ok"
    clock.ahead = timedelta(seconds=10)
    assert health().status == "degraded"
    assert health().stages == {"scraping": "up", "chunking": "paused", "embedding": "breaker_open"}


@pytest.mark.fault("F58")
def test_health_knows_maintenance_and_whether_limits_are_shared(store: JobStore, clock: Now) -> None:
    limits = InMemoryLimits()
    health = ReadHealth(store, process(limits, clock).active, clock)
    assert (health().status, health().limits, limits.calls) == ("ok", "shared", 1)
    limits.announce("moving")
    clock.ahead = timedelta(seconds=10)
    assert (health().status, health().limits) == ("maintenance", "shared")
    limits.unavailable = True
    clock.ahead = timedelta(seconds=20)
    assert (health().status, health().limits) == ("maintenance", "local")
    clock.ahead = timedelta(seconds=1_000)
    assert (health().status, health().limits) == ("degraded", "local")


@pytest.mark.fault("F58")
def test_health_knows_the_maintenance_that_requests_of_its_process_are_refused_for(
    store: JobStore, clock: Now
) -> None:
    limits = InMemoryLimits()
    one = process(limits, clock)
    health = ReadHealth(store, one.active, clock)
    assert health().status == "ok"
    limits.announce("moving")
    clock.ahead = timedelta(seconds=6)
    with pytest.raises(InMaintenance):
        one.enforcer.check_open()
    limits.unavailable = True
    for seconds, status in ((10, "maintenance"), (600, "maintenance"), (620, "degraded")):
        clock.ahead = timedelta(seconds=seconds)
        assert (health().status, health().limits) == (status, "local")


def test_health_and_the_guard_of_a_process_know_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    serve, of_use_cases = app.serve, wiring.build_use_cases

    def noted(*given: Any, **named: Any) -> app.Handler:
        found.update(named)
        return serve(*given, **named)

    monkeypatch.setattr(app, "serve", noted)
    monkeypatch.setattr(wiring, "build_use_cases", lambda given: found.setdefault("api", of_use_cases(given)))
    wiring.build_api(OrchestratorApiSettings.from_environment(environment("OrchestratorApi")))
    assert found["active"] is found["api"].health.active


def test_health_remembers_a_failed_read_as_long_as_a_good_one(clock: Now) -> None:
    class Down:
        asked = 0

        def read(self, work: object) -> None:
            self.asked += 1
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "down")

    down = Down()
    health = ReadHealth(cast("JobStore", down), process(InMemoryLimits(), clock).active, clock)
    for _ in range(5):
        with pytest.raises(TransientError) as caught:
            health()
        assert caught.value.code == ErrorCode.DATABASE_UNAVAILABLE
    assert down.asked == 1
    clock.ahead = timedelta(seconds=10)
    with pytest.raises(TransientError):
        health()
    assert down.asked == 2


@pytest.mark.shows("R106")
def test_job_and_history_name_the_request_behind_them(store: JobStore, read: ReadJobs) -> None:
    job = new_job(request_id="request-1")
    submitted(store, job)
    applied(store, failed(job.job_id))
    assert read.get(CALLER, job.job_id).request_id == "request-1"
    retried(store, job.job_id, request_id="request-2")
    canceled(store, job.job_id, request_id="request-3")
    history = store.read(lambda tx: tx.history(CALLER.caller_id, job.job_id))
    assert history is not None
    assert history.intact
    assert [(each.to_status.value, each.request_id) for each in history.entries] == [
        *(("pending", "request-1"), ("scraping", "request-1"), ("failed", "request-1")),
        *(("pending", "request-2"), ("scraping", "request-2"), ("failed", "request-3")),
    ]
