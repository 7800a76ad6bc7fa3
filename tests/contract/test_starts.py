"""One suite for every store: a quota counts each start of a job, whichever attempt it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.job import Job
from indexmill.orchestrator.admission.admit import Quota, admit_all
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.sweep import Retention, SweepStore
from indexmill.platform.postgres.database import Database
from tests.support.job_stores import canceled, retried
from tests.support.jobs import CALLER, new_job, stored_job, submitted
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs

HOURLY = JobLimits({"free": Quota(max_per_hour=3)}, max_pending=2)
BURST = JobLimits({"free": Quota(burst=2)})

Age = Callable[[int], None]


@pytest.fixture(params=["twin", "postgres"])
def made(request: pytest.FixtureRequest) -> Iterator[Callable[[JobLimits], tuple[JobStore, Age]]]:
    """Yield what makes a store with limits, and a way to let seconds pass in it."""
    if request.param == "twin":
        clock = FrozenClock()
        yield lambda limits: (InMemoryJobs(clock, limits=limits), clock.tick)
        return
    database = Database(request.getfixturevalue("database_url"))

    def age(seconds: int) -> None:
        by = f"interval '{seconds} seconds'"
        database.connection().execute(
            f"UPDATE jobs SET created_at = created_at - {by}, admitted_at = admitted_at - {by}"
        )
        database.connection().execute(f"UPDATE earlier_starts SET started_at = started_at - {by}")

    yield lambda limits: (JobStore(database, limits), age)
    database.close()


def job(store: JobStore, job_id: str) -> Job:
    found = stored_job(store, CALLER.caller_id, job_id)
    assert found is not None
    return found


def submit(store: JobStore, url: str = "https://example.com/a") -> str:
    ((accepted,), _) = submitted(store, new_job(url))
    return accepted.job_id


def cycle(store: JobStore, job_id: str) -> str:
    """Cancel the job and retry it; return its status."""
    canceled(store, job_id)
    return retried(store, job_id).job.status.value


@pytest.mark.shows("S9")
def test_cancel_and_retry_in_a_loop_start_no_more_than_the_quota(
    made: Callable[[JobLimits], tuple[JobStore, Age]],
) -> None:
    store, age = made(HOURLY)
    job_id = submit(store)
    assert [cycle(store, job_id) for _ in range(6)] == ["scraping"] * 2 + ["pending"] * 4
    waiting = job(store, job_id).waiting
    assert waiting is not None
    assert waiting.reason == "quota_hourly"
    assert waiting.next_eligible_at is not None
    assert admit_all(store) == []
    age(3400)
    assert admit_all(store) == []
    age(201)
    assert [row.job_id for row in admit_all(store)] == [job_id]
    assert job(store, job_id).status == "scraping"


def test_a_start_of_an_earlier_attempt_leaves_the_window_after_an_hour(
    made: Callable[[JobLimits], tuple[JobStore, Age]],
) -> None:
    store, age = made(HOURLY)
    job_id = submit(store)
    age(1800)
    assert [cycle(store, job_id) for _ in range(3)] == ["scraping", "scraping", "pending"]
    age(1801)
    assert len(admit_all(store)) == 1
    assert cycle(store, job_id) == "pending"


def test_a_burst_counts_retries_too(made: Callable[[JobLimits], tuple[JobStore, Age]]) -> None:
    store, age = made(BURST)
    job_id = submit(store)
    assert [cycle(store, job_id) for _ in range(2)] == ["scraping", "pending"]
    age(61)
    assert len(admit_all(store)) == 1


def test_a_retry_beyond_the_pending_jobs_that_a_caller_may_have_is_refused(
    made: Callable[[JobLimits], tuple[JobStore, Age]],
) -> None:
    store, _ = made(HOURLY)
    ids = [submit(store, f"https://example.com/{at}") for at in range(5)]
    assert [job(store, each).status.value for each in ids].count("pending") == 2
    canceled(store, ids[0])
    with pytest.raises(CallerError) as refused:
        retried(store, ids[0])
    assert (refused.value.code, refused.value.http_status) == ("quota_exceeded", 429)
    assert job(store, ids[0]).status == "failed"


def test_starts_of_more_than_an_hour_ago_are_deleted(database_url: str) -> None:
    database = Database(database_url)
    store = JobStore(database, HOURLY)
    cycle(store, submit(store))
    cycle(store, submit(store, "https://example.com/b"))
    kept = "SELECT count(*) FROM earlier_starts"
    assert database.connection().execute(kept).fetchall() == [(2,)]
    database.connection().execute(
        "UPDATE earlier_starts SET started_at = now() - interval '61 minutes'"
        " WHERE job_id = (SELECT min(job_id) FROM earlier_starts)"
    )
    assert SweepStore(database).purge(Retention(), 10)["earlier_starts"] == 1
    assert database.connection().execute(kept).fetchall() == [(1,)]
    database.close()


def test_starts_are_read_from_the_newest_one_on(database_url: str) -> None:
    """However many starts an hour has: both indexes are merged, and nothing is sorted."""
    database = Database(database_url)
    connection = database.connection()
    connection.execute("SET enable_seqscan = off")
    connection.execute("SET enable_bitmapscan = off")
    plan = connection.execute(
        "EXPLAIN SELECT at FROM (SELECT caller_id, admitted_at AS at FROM jobs"
        " UNION ALL SELECT caller_id, started_at FROM earlier_starts) AS starts"
        " WHERE caller_id = 'c' AND at > now() - interval '1 hour' ORDER BY at DESC LIMIT 15"
    ).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "Merge Append" in text, text
    assert "Sort Key" in text, text
    assert "->  Sort" not in text, text
    database.close()
