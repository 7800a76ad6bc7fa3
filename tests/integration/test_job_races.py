"""Concurrent requests for one job, on a real Postgres."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

import pytest

from indexmill.contracts.errors import CallerError, TransientError
from indexmill.contracts.job import SubmitRequest, SubmitResponse
from indexmill.contracts.messages import EmbedTask
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import DocumentVersion, PublishOutcome, Space
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.rows import InFlight
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.postgres.database import Database
from tests.support.job_stores import Jobs, Sent, canceled, postgres_jobs, retried
from tests.support.jobs import CALLER, applied, chunked, embedded, failed, new_job, scraped, submitted
from tests.twins.uploads import objects

pytestmark = pytest.mark.integration

T = TypeVar("T")
ROUNDS, MOST_ROUNDS = 12, 120
HEAD_START_S = 0.02
SPACE = Space("m", 2)


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as found:
        yield found


@pytest.fixture
def pair(database_url: str) -> Iterator[list[Database]]:
    opened = [Database(database_url), Database(database_url)]
    yield opened
    for database in opened:
        database.close()


def at_once(*calls: Callable[[], T]) -> list[T | CallerError]:
    """Run the calls in threads that start together; what each returned or raised."""
    barrier = threading.Barrier(len(calls))
    found: list[T | CallerError | None] = [None] * len(calls)

    def run(position: int, call: Callable[[], T]) -> None:
        barrier.wait(10)
        try:
            found[position] = call()
        except CallerError as error:
            found[position] = error

    threads = [threading.Thread(target=run, args=(at, call)) for at, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(one is not None for one in found)
    return cast("list[T | CallerError]", found)


def later(seconds: float, call: Callable[[], T]) -> T:
    """Let the other of two calls begin first, by a moment that lets either of them win."""
    threading.Event().wait(seconds)
    return call()


def url() -> str:
    return f"https://example.com/{uuid.uuid4()}"


def test_one_key_sent_twice_at_once_is_one_job(jobs: Jobs, pair: list[Database]) -> None:
    for number in range(ROUNDS):
        body = SubmitRequest(url=url(), corpus_name="docs")
        calls = [
            partial(
                SubmitJobs(JobStore(database), Sent(), *objects()),
                CALLER,
                body,
                "req-1",
                f"key-{number}",
            )
            for database in pair
        ]
        first, second = cast("list[SubmitResponse]", at_once(*calls))
        assert first == second
    assert len(jobs.find()) == ROUNDS


def test_one_url_sent_twice_at_once_is_one_job(jobs: Jobs, pair: list[Database]) -> None:
    for _ in range(ROUNDS):
        same = url()
        calls = [partial(submitted, JobStore(database), new_job(same), new_job(url())) for database in pair]
        ((first, _), _), ((second, _), _) = cast("list[Any]", at_once(*calls))
        assert first.job_id == second.job_id
        assert [first.deduplicated, second.deduplicated].count(True) == 1


def test_a_duplicate_whose_job_ends_at_that_moment_is_a_job_of_its_own(
    jobs: Jobs, pair: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = jobs.submit(new_job())
    look = JobsTx.jobs_in_flight

    def too_late(self: JobsTx, *given: Any) -> list[InFlight]:
        """Look, just after the job in flight ended."""
        jobs.apply(failed(first))
        return look(self, *given)

    inserts: list[JobsTx] = []
    insert = JobsTx.insert_jobs

    def inserted(self: JobsTx, *given: Any) -> set[str]:
        inserts.append(self)
        return insert(self, *given)

    monkeypatch.setattr(JobsTx, "jobs_in_flight", too_late)
    monkeypatch.setattr(JobsTx, "insert_jobs", inserted)
    second, other = new_job(), new_job("https://example.com/other")
    (accepted, beside), _ = submitted(JobStore(pair[0]), second, other)
    assert (accepted.job_id, beside.job_id) == (second.job_id, other.job_id)
    assert [jobs.job(each.job_id).status for each in (second, other)] == ["scraping", "scraping"]
    # A second insert in one transaction would lock documents out of order: each insert has its own.
    assert len(inserts) == len(set(map(id, inserts))) == 2


def test_a_submit_gives_up_when_jobs_of_its_documents_come_and_go_each_time(
    jobs: Jobs, pair: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.submit(new_job())
    monkeypatch.setattr(JobsTx, "jobs_in_flight", lambda *_: [])
    other = new_job("https://example.com/other")
    with pytest.raises(TransientError) as unavailable:
        submitted(JobStore(pair[0]), other, new_job())
    assert unavailable.value.code == "database_unavailable"
    assert other.job_id not in {job.job_id for job in jobs.find(CALLER.caller_id)}


def test_two_last_dependencies_that_end_at_once_start_the_job_once(jobs: Jobs, pair: list[Database]) -> None:
    for _ in range(ROUNDS):
        wanted = [jobs.submit(new_job(url())) for _ in pair]
        follower = new_job(url(), depends_on=tuple(wanted))
        jobs.submit(follower)
        for job_id in wanted:
            jobs.apply(scraped(job_id), chunked(job_id))
        calls = [
            partial(applied, JobStore(database), embedded(job_id))
            for database, job_id in zip(pair, wanted, strict=True)
        ]
        at_once(*calls)
        assert jobs.job(follower.job_id).status == "scraping"


def test_a_dependency_that_ends_while_a_dependent_is_submitted_is_noticed(
    jobs: Jobs, pair: list[Database]
) -> None:
    stores = [JobStore(database) for database in pair]
    for _ in range(ROUNDS):
        first = jobs.submit(new_job(url()))
        jobs.apply(scraped(first), chunked(first))
        follower = new_job(url(), depends_on=(first,))
        at_once(
            partial(applied, stores[0], embedded(first)),
            partial(submitted, stores[1], follower),
        )
        assert jobs.job(follower.job_id).status == "scraping"


def version(task: EmbedTask) -> DocumentVersion:
    chunk_ids = [uuid.uuid4().hex * 2]
    return DocumentVersion(
        target=task.target,
        generation=task.generation,
        job_id=task.job_id,
        title=None,
        content_sha256=None,
        space=SPACE,
        chunks=(task.chunks or [])[:1],
        chunk_ids=chunk_ids,
        vectors={chunk_ids[0]: [1.0, 0.0]},
    )


@pytest.mark.fault("F15")
def test_of_a_cancel_and_a_publish_at_once_one_wins(jobs: Jobs, pair: list[Database]) -> None:
    index, store = PgVectorIndex(pair[0]), JobStore(pair[1])
    outcomes: set[bool] = set()
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and len(outcomes) == 2:
            break
        job_id, task = jobs.up_to_embedding(new_job(url()))
        made = version(task)
        seen, outcome = at_once(
            cast("Any", partial(later, (0.0, HEAD_START_S, 0.0)[number % 3], partial(index.publish, [made]))),
            partial(
                later,
                (0.0, 0.0, HEAD_START_S)[number % 3],
                partial(canceled, store, job_id),
            ),
        )
        published = seen == [PublishOutcome.PUBLISHED]
        assert published is isinstance(outcome, CallerError)
        assert jobs.job(job_id).status == ("embedding" if published else "failed")
        outcomes.add(published)
    assert outcomes == {True, False}, "each of them won some"


def test_of_two_retries_at_once_one_counts(jobs: Jobs, pair: list[Database]) -> None:
    for _ in range(ROUNDS):
        job_id = jobs.submit(new_job(url()))
        jobs.apply(failed(job_id))
        calls = [partial(retried, JobStore(database), job_id) for database in pair]
        refused = [one for one in at_once(*calls) if isinstance(one, CallerError)]
        assert [one.code for one in refused] == ["invalid_transition"]
        assert jobs.job(job_id).attempt == 2


def test_of_a_retry_and_a_new_job_at_once_one_is_in_flight(jobs: Jobs, pair: list[Database]) -> None:
    retrying, submitting = JobStore(pair[0]), JobStore(pair[1])
    for _ in range(ROUNDS):
        same = url()
        job_id = jobs.submit(new_job(same))
        jobs.apply(failed(job_id))
        fresh = new_job(same)
        again, ((accepted,), _) = cast(
            "Any",
            at_once(cast("Any", partial(retried, retrying, job_id)), partial(submitted, submitting, fresh)),
        )
        if isinstance(again, CallerError):
            assert accepted.job_id == fresh.job_id
        else:
            assert (accepted.job_id, accepted.deduplicated) == (job_id, True)
