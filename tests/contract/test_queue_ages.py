"""One suite for the notes of queues' ages; and the load of all jobs on Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.contracts.identity import Quota
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.limits.store import Load, QueueAges
from indexmill.platform.postgres.database import Database
from local.backends.ministack import MiniStack
from tests.contract.test_state_table import table
from tests.support.jobs import applied, failed, new_job, submitted
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryQueueAges


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=["twin", "dynamodb"])
def ages(request: pytest.FixtureRequest, clock: FrozenClock) -> QueueAges:
    if request.param == "twin":
        return InMemoryQueueAges(clock)
    emulator: MiniStack = request.getfixturevalue("ministack")
    client, name = table(emulator.endpoint)
    return QueueAges(name, clock, client)


def test_each_stage_has_its_own_note(ages: QueueAges) -> None:
    ages.note("scraping", 42.5)
    assert (ages.oldest("scraping"), ages.oldest("embedding")) == (42.5, 0.0)


def test_of_two_workers_the_one_that_sees_older_messages_counts(ages: QueueAges, clock: FrozenClock) -> None:
    ages.note("scraping", 300.0)
    clock.tick(5)
    ages.note("scraping", 12.0)
    assert ages.oldest("scraping") == 300.0
    ages.note("scraping", 310.0)
    assert ages.oldest("scraping") == 310.0
    clock.tick(16)
    ages.note("scraping", 12.0)
    assert ages.oldest("scraping") == 12.0


def test_a_note_counts_for_a_minute(ages: QueueAges, clock: FrozenClock) -> None:
    ages.note("scraping", 300.0)
    clock.tick(59)
    assert ages.oldest("scraping") == 300.0
    clock.tick(2)
    assert ages.oldest("scraping") == 0.0


def test_a_table_that_is_not_there_says_nothing_and_raises_nothing(clock: FrozenClock) -> None:
    from botocore.exceptions import ClientError

    class Gone:
        def put_item(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "PutItem")

        def get_item(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetItem")

    gone = QueueAges("gone", clock, Gone())
    gone.note("scraping", 300.0)
    assert gone.oldest("scraping") == 0.0


@pytest.fixture
def store(database_url: str) -> Iterator[tuple[JobStore, Database]]:
    database = Database(database_url)
    quotas = {"free": Quota(max_active=1), "pro": Quota()}
    yield JobStore(database, JobLimits(quotas, window=2, per_caller=2)), database
    database.close()


def submit(store: JobStore, caller: str, tier: str, count: int = 1) -> list[str]:
    jobs = [
        new_job(f"https://example.com/{caller}/{tier}/{at}", caller_id=caller, tier=tier)
        for at in range(count)
    ]
    submitted(store, *jobs)
    return [job.job_id for job in jobs]


def load(jobs: JobStore, most: int) -> Load:
    return jobs.read(lambda tx: tx.load(most + 1))


def test_the_load_of_jobs_is_what_is_pending_and_in_flight(store: tuple[JobStore, Database]) -> None:
    jobs, _ = store
    assert load(jobs, 100).depth == 0
    ids = submit(jobs, "ann", "pro", 5)
    submit(jobs, "bob", "free", 2)
    assert load(jobs, 100).depth == 7
    applied(jobs, *map(failed, ids))
    assert load(jobs, 100).depth == 5
    # Counted no further than asked: of those that are pending, and of those in flight.
    assert load(jobs, 1).depth == 2 + 2


def test_its_age_is_that_of_a_job_which_waits_for_capacity_alone(
    store: tuple[JobStore, Database],
) -> None:
    jobs, database = store
    submit(jobs, "bob", "free", 3)
    database.connection().execute(
        "UPDATE jobs SET created_at = now() - interval '1 hour', updated_at = now() - interval '1 hour'"
    )
    # They wait for their caller's own quota.
    assert load(jobs, 100).age_s == 0.0
    submit(jobs, "ann", "pro", 3)
    assert load(jobs, 100).age_s < 60
    database.connection().execute(
        "UPDATE jobs SET updated_at = now() - interval '100 seconds' WHERE caller_id = 'ann'"
    )
    assert load(jobs, 100).age_s == pytest.approx(100, abs=30)
