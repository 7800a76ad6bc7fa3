"""Rows of failed jobs are deleted when nothing can refer to them any more, and not before."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.orchestrator.store.jobs import DeadLetter, JobStore
from indexmill.orchestrator.store.rows import NewJob
from indexmill.orchestrator.store.sweep import Retention, SweepStore
from indexmill.platform.postgres.database import Connection, Database
from tests.support.index_builders import version
from tests.support.jobs import applied, chunked, failed, new_job, scraped, submitted

pytestmark = pytest.mark.integration

URL = "https://example.com/failed/"


@dataclass
class Harness:
    database: Database
    jobs: JobStore
    view: SweepStore
    truth: Connection

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.truth.execute(statement.encode()).fetchall()

    def age(self, days: float) -> None:
        """Let days pass for everything that a purge looks at."""
        for table, columns in {
            "jobs": ("created_at", "updated_at", "ended_at"),
            "dead_letters": ("received_at",),
            "documents": ("fenced_at",),
        }.items():
            earlier = ", ".join(f"{name} = {name} - interval '{days} days'" for name in columns)
            self.truth.execute(f"UPDATE {table} SET {earlier}".encode())

    def purged(self, kind: str, limit: int = 10) -> int:
        return self.view.purge(Retention(), limit)[kind]

    def letter(self, job_id: str | None = None) -> None:
        letter = DeadLetter(
            "q", "{}", 1, "no message of ours", "foreign", job_id, source_id=str(uuid.uuid4())
        )
        self.jobs.record_dead_letter(letter)

    def embedding(self, name: str) -> NewJob:
        """Bring a new job to its embed stage."""
        job = new_job(URL + name)
        submitted(self.jobs, job)
        self.apply(scraped(job.job_id), chunked(job.job_id))
        return job

    def apply(self, *results: Any) -> None:
        for result in results:
            applied(self.jobs, result)


@pytest.fixture
def harness(database_url: str) -> Iterator[Harness]:
    database = Database(database_url)
    with psycopg.connect(database_url, autocommit=True) as truth:
        yield Harness(database, JobStore(database), SweepStore(database), truth)
    database.close()


def test_dead_letters_are_kept_as_long_as_their_queue_would_have_kept_them(harness: Harness) -> None:
    for _ in range(3):
        harness.letter()
    harness.age(13.9)
    assert harness.purged("dead_letters") == 0
    harness.age(0.2)
    harness.letter()
    assert [harness.purged("dead_letters", 2) for _ in range(3)] == [2, 1, 0]
    assert harness.rows("SELECT count(*) FROM dead_letters") == [(1,)]


def test_a_dead_letter_is_kept_while_its_job_is_in_flight_or_retryable(harness: Harness) -> None:
    job = new_job(URL)
    submitted(harness.jobs, job)
    harness.letter(job.job_id)
    harness.age(30)
    assert harness.purged("dead_letters") == 0
    harness.apply(failed(job.job_id))
    harness.age(6.9)
    assert harness.purged("dead_letters") == 0
    harness.age(0.2)
    assert harness.purged("dead_letters") == 1


def test_a_document_that_was_never_published_is_deleted_when_no_message_for_it_can_be_left(
    harness: Harness,
) -> None:
    for name in "abc":
        harness.apply(failed(harness.embedding(name).job_id, "embedding"))
    assert harness.rows("SELECT count(*) FROM documents WHERE published IS NULL") == [(3,)]
    harness.age(13.9)
    assert harness.purged("fences") == 0
    harness.age(0.2)
    assert [harness.purged("fences", 2) for _ in range(3)] == [2, 1, 0]
    assert harness.rows("SELECT count(*) FROM documents") == [(0,)]


def test_a_fence_lasts_from_the_last_failure_on(harness: Harness) -> None:
    job = harness.embedding("again")
    harness.apply(failed(job.job_id, "embedding"))
    harness.age(10)
    harness.truth.execute(
        "UPDATE jobs SET status = 'embedding', failed_stage = NULL, error = NULL, attempt = 2"
    )
    harness.apply(failed(job.job_id, "embedding", attempt=2))
    harness.age(10)
    assert harness.purged("fences") == 0
    harness.age(4.1)
    assert harness.purged("fences") == 1


def test_a_document_that_was_published_after_all_stays(harness: Harness) -> None:
    job = harness.embedding("published")
    harness.apply(failed(job.job_id, "embedding"))
    index = PgVectorIndex(harness.database)
    index.publish([version(["some text"], generation=10**9, to=job.target)])
    harness.age(15)
    assert harness.purged("fences") == 0
    assert harness.rows("SELECT published, fenced_at FROM documents") == [(10**9, None)]


def test_nothing_of_a_deleted_document_is_left_in_the_index(harness: Harness) -> None:
    job = harness.embedding("late")
    harness.apply(failed(job.job_id, "embedding"))
    index = PgVectorIndex(harness.database)
    index.publish([version(["too late"], generation=1, to=job.target)])
    harness.age(15)
    assert harness.purged("fences") == 1
    tables = ("documents", "chunks", "memberships", "vectors", "postings")
    assert {harness.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables} == {0}


def test_a_successful_publish_leaves_no_fence(harness: Harness) -> None:
    job = harness.embedding("well")
    PgVectorIndex(harness.database).publish([version(["some text"], generation=5, to=job.target)])
    assert harness.rows("SELECT published, fenced_at FROM documents") == [(5, None)]
