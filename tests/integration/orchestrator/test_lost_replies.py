"""Commits whose answer is lost: every statement may be repeated and reads the committed state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from indexmill.orchestrator.store.jobs import DeadLetter, JobStore
from indexmill.orchestrator.store.sweep import Count, Retention, SweepStore
from indexmill.orchestrator.sweeper.rescue import confirm_missing
from indexmill.platform.postgres.database import Connection, Database
from tests.support.jobs import applied, new_job, scraped, submitted
from tests.support.lines import Line, line_to

pytestmark = pytest.mark.integration


@dataclass
class Harness:
    line: Line
    jobs: JobStore
    view: SweepStore
    truth: Connection

    def confirm_missing(self, counts: dict[str, Count]) -> dict[str, int]:
        return self.jobs.transaction(lambda tx: confirm_missing(tx, counts))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.truth.execute(statement.encode()).fetchall()


@pytest.fixture
def harness(database_url: str) -> Iterator[Harness]:
    with line_to(database_url) as line, psycopg.connect(database_url, autocommit=True) as truth:
        database = Database(line.url)
        database.connection()
        yield Harness(line, JobStore(database), SweepStore(database), truth)
        assert len(line.fired) == 1
        database.close()


@pytest.mark.fault("F5")
def test_a_submit_is_accepted_once(harness: Harness) -> None:
    job = new_job()
    harness.line.lose_reply_to("COMMIT")
    ((accepted,), _) = submitted(harness.jobs, job)
    assert (accepted.job_id, accepted.deduplicated) == (job.job_id, False)
    assert harness.rows("SELECT id, status FROM jobs") == [(job.job_id, "scraping")]
    assert harness.rows("SELECT id FROM outbox") == [(job.first.id,)]
    assert harness.rows("SELECT to_status FROM job_history ORDER BY seq") == [("pending",), ("scraping",)]


def test_a_first_submit_of_a_new_process_is_no_different(harness: Harness) -> None:
    job, database = new_job(), Database(harness.line.url)
    harness.line.lose_reply_to("COMMIT")
    submitted(JobStore(database), job)
    assert harness.rows("SELECT count(*) FROM jobs") == [(1,)]
    database.close()


@pytest.mark.fault("F5")
def test_a_result_counts_once_and_its_next_message_is_kept(harness: Harness) -> None:
    job = new_job()
    submitted(harness.jobs, job)
    harness.jobs.mark_sent([job.first.id])
    harness.line.lose_reply_to("COMMIT")
    applied(harness.jobs, scraped(job.job_id))
    assert harness.rows("SELECT status FROM jobs") == [("chunking",)]
    assert harness.rows("SELECT count(*) FROM outbox WHERE stage = 'chunking' AND sent_at IS NULL") == [(1,)]
    harness.truth.execute("UPDATE outbox SET claimed_until = now() - interval '1 second'")
    assert [row.stage for row in harness.jobs.claim(10)] == ["chunking"]


def test_a_lease_whose_reply_was_lost_expires(harness: Harness) -> None:
    job = new_job()
    submitted(harness.jobs, job)
    harness.truth.execute("UPDATE outbox SET claimed_until = now() - interval '1 second'")
    harness.line.lose_reply_to("SET claimed_until")
    assert harness.jobs.claim(10) == []
    harness.truth.execute("UPDATE outbox SET claimed_until = claimed_until - interval '31 seconds'")
    assert [row.id for row in harness.jobs.claim(10)] == [job.first.id]


@pytest.mark.fault("F5")
def test_what_was_sent_is_marked_as_sent(harness: Harness) -> None:
    job = new_job()
    submitted(harness.jobs, job)
    harness.line.lose_reply_to("SET sent_at")
    harness.jobs.mark_sent([job.first.id])
    assert harness.rows("SELECT count(*) FROM outbox WHERE sent_at IS NOT NULL") == [(1,)]


@pytest.mark.fault("F5")
def test_a_lost_message_is_sent_again_once(harness: Harness) -> None:
    job = new_job()
    submitted(harness.jobs, job)
    harness.jobs.mark_sent([job.first.id])
    found = harness.view.find_stale("scraping", 10, harness.view.now(), overtaken=False)
    harness.line.lose_reply_to("rescues = rescues + 1")
    harness.view.send_again(found)
    assert harness.rows("SELECT rescues, sent_at IS NULL FROM outbox") == [(1, True)]


def test_a_count_counts_once(harness: Harness) -> None:
    before = harness.view.now() - timedelta(minutes=1)
    harness.confirm_missing({"scraping": Count(3, before)})
    harness.line.lose_reply_to("COMMIT")
    # The answer was "3 are missing"; it was lost, and the next tick counts again.
    assert harness.confirm_missing({"scraping": Count(3, harness.view.now())}) == {}
    assert harness.rows("SELECT missing FROM sweep_state") == [(3,)]


def test_a_dead_letter_is_kept_once(harness: Harness) -> None:
    harness.line.lose_reply_to("INSERT INTO dead_letters")
    assert harness.jobs.record_dead_letter(DeadLetter("q", "body", 1, "because", source_id="m-1"))
    assert harness.rows("SELECT body FROM dead_letters") == [("body",)]


def test_a_clean_up_is_done(harness: Harness) -> None:
    harness.truth.execute(
        "INSERT INTO inbox (message_id, received_at) VALUES ('old', now() - interval '15 days')"
    )
    harness.line.lose_reply_to("DELETE FROM inbox")
    harness.view.purge(Retention(), 10)
    assert harness.rows("SELECT count(*) FROM inbox") == [(0,)]


def test_incidents_are_opened_once(harness: Harness) -> None:
    harness.line.lose_reply_to("INSERT INTO incidents")
    harness.view.incidents("paused", {"scraping": {}})
    assert harness.rows("SELECT subject FROM incidents WHERE closed_at IS NULL") == [("scraping",)]
