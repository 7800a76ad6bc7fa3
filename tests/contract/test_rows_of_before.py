"""Outbox rows of the release before, in which chunking was a call: each becomes a message of the queue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from indexmill.contracts.messages import ChunkTask, read
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres.sweep import PostgresSweep
from indexmill.orchestrator.admission.admit import admit_all
from indexmill.orchestrator.jobs.rows import OutboxRow
from indexmill.platform.postgres.database import Database
from tests.support.job_stores import retried
from tests.support.jobs import applied, chunked, embedded, failed, new_job, scraped, submitted

pytestmark = pytest.mark.fault("F69")

PAYLOAD = {"text": "Some words.", "text_ref": None, "title": "Title", "job_id": None, "request_id": "r-1"}
"""As ChunkItem.model_dump_json() wrote it."""


@dataclass
class Harness:
    """A job that stopped in chunking, as the release before left it."""

    database: Database
    jobs: PostgresJobs
    sweep: PostgresSweep
    job_id: str
    message_id: str

    def execute(self, statement: str, *values: Any) -> list[Any]:
        cursor = self.database.connection().execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def apply(self, *results: Any) -> list[OutboxRow]:
        return [row for change in applied(self.jobs, *results) for row in change.outbox]

    def task(self, rows: Sequence[OutboxRow]) -> ChunkTask:
        """Return the message that goes to the queue, checked against the row."""
        (row,) = rows
        task = read(ChunkTask, row.payload)
        assert (row.stage, task.message_id, task.job_id, task.attempt) == (
            *("chunking", row.id, self.job_id),
            row.attempt,
        )
        assert (task.text, task.title, task.request_id) == ("Some words.", "Title", "r-1")
        return task


@pytest.fixture
def harness(database_url: str) -> Iterator[Harness]:
    database = Database(database_url)
    jobs, job = PostgresJobs(database), new_job()
    submitted(jobs, job)
    (row,) = applied(jobs, scraped(job.job_id))[0].outbox
    made = Harness(database, jobs, PostgresSweep(database), job.job_id, row.id)
    made.execute("UPDATE outbox SET sent_at = now() WHERE stage = 'scraping'")
    made.execute(
        "UPDATE outbox SET kind = 'call', payload = %s, tries = 2, claimed_until = now() WHERE id = %s",
        json.dumps(PAYLOAD),
        row.id,
    )
    yield made
    database.close()


def test_an_unsent_call_is_claimed_as_a_message(harness: Harness) -> None:
    task = harness.task(harness.jobs.claim(10))
    assert (task.message_id, task.attempt) == (harness.message_id, 1)
    (row,) = harness.apply(chunked(harness.job_id))
    assert row.stage == "embedding"
    harness.apply(embedded(harness.job_id))


def test_a_call_of_a_job_that_waits_for_admission_starts_as_a_message(harness: Harness) -> None:
    harness.apply(failed(harness.job_id, "chunking", "max_retries_exceeded"))
    harness.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES ('*', 'a reason', 'me')")
    outcome = retried(harness.jobs, harness.job_id)
    assert (outcome.job.status, outcome.outbox) == ("pending", [])
    harness.execute("UPDATE outbox SET kind = 'call', payload = %s WHERE attempt = 2", json.dumps(PAYLOAD))
    harness.execute("DELETE FROM pauses")
    assert harness.task(admit_all(harness.jobs)).attempt == 2


def test_a_retry_sends_the_kept_call_as_a_message(harness: Harness) -> None:
    harness.apply(failed(harness.job_id, "chunking", "max_retries_exceeded"))
    new_id = str(uuid.uuid4())
    task = harness.task(retried(harness.jobs, harness.job_id, new_id).outbox)
    assert (task.message_id, task.attempt) == (new_id, 2)


def test_a_rescue_sends_the_kept_call_as_a_message(harness: Harness) -> None:
    harness.execute("UPDATE outbox SET sent_at = now() - interval '1 hour' WHERE id = %s", harness.message_id)
    harness.execute("UPDATE jobs SET updated_at = now() - interval '1 hour'")
    lost = harness.sweep.stuck(["chunking"], [], 10)
    assert [job.message_id for job in lost] == [harness.message_id]
    assert harness.sweep.send_again(lost) == 1
    assert harness.task(harness.jobs.claim(10)).message_id == harness.message_id
