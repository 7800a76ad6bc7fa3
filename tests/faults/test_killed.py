"""Processes that are killed where other designs lose work: what is seen then, and afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from local.faults.invariants.report import violations, wait_until_idle
from local.faults.invariants.violation import Accepted
from local.faults.rules import parse
from local.faults.sample_pages import Page
from tests.faults.arena import VISIBILITY_S, Arena
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e

PLACES = {
    "before it is marked as sent": "OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue:kill_after",
    "after the page is stored": "ScraperWorker/s3.PutObject@raw:kill_after",
    "after the report is sent": "ScraperWorker/sqs.SendMessageBatch@CallbacksQueue:kill_after",
    "between state and message": "OrchestratorResults/postgres.commit:kill_before",
    "after the vectors are written": "EmbeddingWorker/postgres.commit:kill_after",
}
EACH_STEP_ONCE = ["pending", "scraping", "chunking", "embedding", "done"]


@dataclass(frozen=True)
class Ended:
    """Jobs that lost a process each, by place; all of them ran at the same time."""

    arena: Arena
    jobs: dict[str, Accepted]
    then: dict[str, Any]
    """What the database held of the job that was killed within its transaction, just afterwards."""

    def rows(self, statement: str, *values: Any) -> list[Any]:
        with self.arena.cloud.database() as database:
            return database.execute(statement.encode(), values).fetchall()

    def steps(self, job: Accepted) -> list[str]:
        """Return the steps of the document's first job: a submit whose answer was lost is sent again."""
        statement = """SELECT to_status FROM job_history WHERE job_id = (
            SELECT id FROM jobs WHERE document_id = (SELECT document_id FROM jobs WHERE id = %s)
            ORDER BY created_at LIMIT 1) ORDER BY seq"""
        return [status for (status,) in self.rows(statement, job.job_id)]


@pytest.fixture(scope="module")
def ended(arena: Arena) -> Ended:
    """Return what came of a job for each place, all promises kept."""
    arena.cloud.set_visibility(VISIBILITY_S)
    # One message at a time: a kill affects one job only.
    arena.cloud.set_batch_size(1)
    tokens = {place: arena.token("killed") for place in PLACES}
    arena.control.arm([parse(f"{fault}~{tokens[place]}") for place, fault in PLACES.items()])
    jobs = {place: arena.submit(arena.page(token)) for place, token in tokens.items()}
    within = jobs["between state and message"]
    token = tokens["between state and message"]
    eventually(lambda: any(token in each["rule"] for each in arena.control.fired()), "the kill within", 10)
    with arena.cloud.database() as database:
        statement = """SELECT status, (SELECT array_agg(stage) FROM outbox WHERE job_id = jobs.id) AS messages
            FROM jobs WHERE id = %s"""
        status, messages = database.execute(statement, (within.job_id,)).fetchone() or ("", [])
    quiet = wait_until_idle(arena.cloud, 60)
    fired = [each["rule"] for each in arena.control.fired()]
    arena.control.arm()
    arena.cloud.set_batch_size(10)
    assert quiet.reached, quiet
    assert [place for place, token in tokens.items() if not any(token in rule for rule in fired)] == []
    assert [str(each) for each in violations(arena.cloud, list(jobs.values()))] == []
    return Ended(arena, jobs, {"status": status, "messages": messages})


@pytest.mark.fault("F4", "F7", "F9")
@pytest.mark.parametrize("place", PLACES)
def test_a_job_whose_process_was_killed_takes_each_step_once(ended: Ended, place: str) -> None:
    assert ended.steps(ended.jobs[place]) == EACH_STEP_ONCE


@pytest.mark.fault("F6")
def test_a_page_that_was_stored_twice_is_one_object(ended: Ended) -> None:
    s3, bucket = ended.arena.cloud.s3, ended.arena.stack.resources["ContentBucket"]
    path = urlsplit(ended.jobs["after the page is stored"].url).path
    page = ended.arena.site_root / path.removeprefix("/")
    stored = s3.list_objects_v2(Bucket=bucket, Prefix="raw/")["Contents"]
    bodies = [s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in stored]
    assert bodies.count(page.read_bytes()) == 1


@pytest.mark.fault("F10")
def test_state_and_message_are_there_together_or_not_at_all(ended: Ended) -> None:
    assert ended.then == {"status": "scraping", "messages": ["scraping"]}


@dataclass(frozen=True)
class Submit:
    """One submit of one page under one key."""

    arena: Arena
    page: Page

    def send(self) -> httpx.Response:
        with self.arena.stack.http() as caller:
            headers = {"Idempotency-Key": self.page.token}
            body = {"url": self.arena.stack.site + self.page.path, "corpus_name": "faults"}
            return caller.post("/orchestrator/jobs", json=body, headers=headers)

    def send_and_kill(self, when: str) -> None:
        """Send, with the process killed `before` or `after` its commit: an error is answered."""
        self.arena.control.arm([parse(f"OrchestratorApi/postgres.commit:kill_{when}")])
        answer = self.send()
        assert answer.status_code >= 500, answer.text

    def left(self) -> tuple[list[str], int, int]:
        """Return the page's jobs, all their messages, and how often the key is kept."""
        with self.arena.cloud.database() as database:
            statement = "SELECT id FROM jobs WHERE url LIKE %s"
            jobs = database.execute(statement, (f"%{self.page.path}",)).fetchall()
            counts = """SELECT (SELECT count(*) FROM outbox WHERE payload LIKE %s),
                (SELECT count(*) FROM idempotency_keys WHERE key = %s)"""
            row = database.execute(counts, (f"%{self.page.path}%", self.page.token)).fetchone()
        messages, keys = row or (-1, -1)
        return [job_id for (job_id,) in jobs], messages, keys

    def accepted(self, job_id: str) -> Accepted:
        return Accepted(job_id, self.arena.stack.site + self.page.path, "faults", self.page.sentence)


@pytest.fixture
def submit(kept: Arena) -> Submit:
    return Submit(kept, kept.page(kept.token("submit")))


@pytest.mark.fault("F1", "F71")
def test_a_submit_that_was_killed_before_its_commit_left_nothing(kept: Arena, submit: Submit) -> None:
    submit.send_and_kill("before")
    assert submit.left() == ([], 0, 0)
    first, again = submit.send(), submit.send()
    assert (first.status_code, again.status_code) == (202, 202)
    job_id = first.json()["job_id"]
    jobs, _, keys = submit.left()
    assert (jobs, keys, again.json()["job_id"]) == ([job_id], 1, job_id)
    kept.accepted.append(submit.accepted(job_id))


@pytest.mark.fault("F2")
def test_a_submit_that_was_killed_after_its_commit_is_answered_the_second_time(
    kept: Arena, submit: Submit
) -> None:
    submit.send_and_kill("after")
    ((job_id,), messages, keys) = submit.left()
    assert (messages, keys) == (1, 1)
    job = submit.accepted(job_id)
    kept.cloud.pass_time()
    kept.cloud.sweep()
    eventually(lambda: kept.ended([job]), "the job runs although no queue was notified")
    answer = submit.send()
    assert (answer.status_code, answer.json()["job_id"]) == (202, job_id)
    assert submit.left()[0] == [job_id]
    kept.accepted.append(job)


@pytest.mark.fault("F3")
def test_a_message_that_no_queue_took_waits_in_its_row(kept: Arena) -> None:
    page = kept.page(kept.token("unsent"))
    kept.control.arm([parse(f"OrchestratorApi/sqs.SendMessageBatch:error~{page.token}")])
    job = kept.submit(page)
    with kept.cloud.database() as database:
        statement = "SELECT sent_at, last_error FROM outbox WHERE job_id = %s"
        assert database.execute(statement, (job.job_id,)).fetchall() == [(None, "queue_unavailable")]
    assert kept.statuses([job]) == {job.job_id: "scraping"}
    kept.cloud.pass_time()
    kept.cloud.sweep()
    eventually(lambda: kept.ended([job]), "the job ends")


@pytest.mark.fault("F23")
def test_of_two_workers_on_one_message_one_counts(kept: Arena) -> None:
    kept.cloud.set_visibility(1)
    page = kept.page(kept.token("slow"))
    slow = parse(f"ScraperWorker/http.get@page:delay=2.5~{page.token}")
    kept.control.arm([slow], trace=True)
    before = len(kept.control.traced())
    job = kept.submit(page)
    eventually(lambda: kept.ended([job]), "the second worker is done")
    reports = "ScraperWorker/sqs.SendMessageBatch@CallbacksQueue"

    def both() -> bool:
        return [each["place"] for each in kept.control.traced()[before:]].count(reports) >= 2

    eventually(both, "both have reported")
    assert any(each["rule"] == slow.text for each in kept.control.fired())
    wait_until_idle(kept.cloud, 20)
    with kept.cloud.database() as database:
        statement = "SELECT to_status FROM job_history WHERE job_id = %s ORDER BY seq"
        steps = [status for (status,) in database.execute(statement, (job.job_id,)).fetchall()]
    assert steps == EACH_STEP_ONCE
