"""Commits whose answer is lost: every statement may be repeated and reads the committed state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from indexmill.orchestrator.accounting import confirm
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres.sweep import PostgresSweep
from indexmill.orchestrator.ports import DeadLetter
from indexmill.orchestrator.ports_sweep import Count, Retention
from indexmill.platform.postgres.database import Connection, Database
from tests.support.jobs import applied, new_job, scraped, submitted
from tests.support.lines import Line, line_to

pytestmark = pytest.mark.integration


@dataclass
class Bench:
    line: Line
    jobs: PostgresJobs
    view: PostgresSweep
    truth: Connection

    def confirm(self, counts: dict[str, Count]) -> dict[str, int]:
        return self.jobs.transaction(lambda tx: confirm(tx, counts))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.truth.execute(statement.encode()).fetchall()


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with line_to(database_url) as line, psycopg.connect(database_url, autocommit=True) as truth:
        database = Database(line.url)
        database.connection()
        yield Bench(line, PostgresJobs(database), PostgresSweep(database), truth)
        assert len(line.fired) == 1
        database.close()


@pytest.mark.fault("F5")
def test_a_submit_is_accepted_once(bench: Bench) -> None:
    job = new_job()
    bench.line.lose_reply_to("COMMIT")
    ((accepted,), _) = submitted(bench.jobs, job)
    assert (accepted.job_id, accepted.deduplicated) == (job.job_id, False)
    assert bench.rows("SELECT id, status FROM jobs") == [(job.job_id, "scraping")]
    assert bench.rows("SELECT id FROM outbox") == [(job.first.id,)]
    assert bench.rows("SELECT to_status FROM job_history ORDER BY seq") == [("pending",), ("scraping",)]


def test_a_first_submit_of_a_new_process_is_no_different(bench: Bench) -> None:
    job, database = new_job(), Database(bench.line.url)
    bench.line.lose_reply_to("COMMIT")
    submitted(PostgresJobs(database), job)
    assert bench.rows("SELECT count(*) FROM jobs") == [(1,)]
    database.close()


@pytest.mark.fault("F5")
def test_a_result_counts_once_and_its_next_message_is_kept(bench: Bench) -> None:
    job = new_job()
    submitted(bench.jobs, job)
    bench.jobs.mark_sent([job.first.id])
    bench.line.lose_reply_to("COMMIT")
    applied(bench.jobs, scraped(job.job_id))
    assert bench.rows("SELECT status FROM jobs") == [("chunking",)]
    assert bench.rows("SELECT count(*) FROM outbox WHERE stage = 'chunking' AND sent_at IS NULL") == [(1,)]
    bench.truth.execute("UPDATE outbox SET claimed_until = now() - interval '1 second'")
    assert [row.stage for row in bench.jobs.claim(10)] == ["chunking"]


def test_a_lease_whose_reply_was_lost_expires(bench: Bench) -> None:
    job = new_job()
    submitted(bench.jobs, job)
    bench.truth.execute("UPDATE outbox SET claimed_until = now() - interval '1 second'")
    bench.line.lose_reply_to("SET claimed_until")
    assert bench.jobs.claim(10) == []
    bench.truth.execute("UPDATE outbox SET claimed_until = claimed_until - interval '31 seconds'")
    assert [row.id for row in bench.jobs.claim(10)] == [job.first.id]


@pytest.mark.fault("F5")
def test_what_was_sent_is_marked_as_sent(bench: Bench) -> None:
    job = new_job()
    submitted(bench.jobs, job)
    bench.line.lose_reply_to("SET sent_at")
    bench.jobs.mark_sent([job.first.id])
    assert bench.rows("SELECT count(*) FROM outbox WHERE sent_at IS NOT NULL") == [(1,)]


@pytest.mark.fault("F5")
def test_a_lost_message_is_sent_again_once(bench: Bench) -> None:
    job = new_job()
    submitted(bench.jobs, job)
    bench.jobs.mark_sent([job.first.id])
    found = bench.view.silent("scraping", 10, bench.view.now(), passed=False)
    bench.line.lose_reply_to("rescues = rescues + 1")
    bench.view.send_again(found)
    assert bench.rows("SELECT rescues, sent_at IS NULL FROM outbox") == [(1, True)]


def test_a_count_counts_once(bench: Bench) -> None:
    before = bench.view.now() - timedelta(minutes=1)
    bench.confirm({"scraping": Count(3, before)})
    bench.line.lose_reply_to("COMMIT")
    # The answer was "3 are missing"; it was lost, and the next tick counts again.
    assert bench.confirm({"scraping": Count(3, bench.view.now())}) == {}
    assert bench.rows("SELECT missing FROM sweep_state") == [(3,)]


def test_a_dead_letter_is_kept_once(bench: Bench) -> None:
    bench.line.lose_reply_to("INSERT INTO dead_letters")
    bench.jobs.record_dead_letter(DeadLetter("q", "body", 1, "because", source_id="m-1"))
    assert bench.rows("SELECT body FROM dead_letters") == [("body",)]


def test_a_clean_up_is_done(bench: Bench) -> None:
    bench.truth.execute(
        "INSERT INTO inbox (message_id, received_at) VALUES ('old', now() - interval '15 days')"
    )
    bench.line.lose_reply_to("DELETE FROM inbox")
    bench.view.purge(Retention(), 10)
    assert bench.rows("SELECT count(*) FROM inbox") == [(0,)]


def test_incidents_are_opened_once(bench: Bench) -> None:
    bench.line.lose_reply_to("INSERT INTO incidents")
    bench.view.incidents("paused", {"scraping": {}})
    assert bench.rows("SELECT subject FROM incidents WHERE closed_at IS NULL") == [("scraping",)]
