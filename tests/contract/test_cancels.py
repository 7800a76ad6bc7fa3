"""Marks of canceled jobs in the state table: written before the cancel's answer, read by workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from indexmill.orchestrator.actions.cancel import CancelBatch, CancelJob
from indexmill.platform.consumer.delivery_log import KEPT_S
from indexmill.platform.progress import Cancels
from local.backends.ministack import MiniStack
from tests.support.job_stores import Sent, postgres_jobs
from tests.support.jobs import CALLER
from tests.support.orchestrator import OrchestratorHarness
from tests.support.state_table import dynamodb, new_table, unavailable
from tests.twins.clock import FrozenClock


def test_marks_are_read_as_they_were_written_and_expire(ministack: MiniStack) -> None:
    client, clock = dynamodb(ministack), FrozenClock()
    table = new_table(client)
    cancels = Cancels(table, clock, client)
    assert cancels.canceled(["a", "b"]) == {}
    cancels.mark({f"job-{at}": at for at in range(1, 61)})
    assert cancels.canceled(["job-1", "job-60", "job-1", "other"]) == {"job-1": 1, "job-60": 60}
    item = client.get_item(TableName=table, Key={"pk": {"S": "canceled#job-1"}})["Item"]
    assert int(item["expires_at"]["N"]) == int(clock.now().timestamp()) + KEPT_S


def test_without_the_table_nothing_counts_as_canceled() -> None:
    cancels = Cancels("none", FrozenClock(), unavailable())
    cancels.mark({"a": 1})
    assert cancels.canceled(["a"]) == {}


@dataclass
class Marked:
    found: dict[str, int] = field(default_factory=dict)

    def mark(self, attempts: Mapping[str, int]) -> None:
        self.found |= attempts


@pytest.fixture
def harness() -> OrchestratorHarness:
    return OrchestratorHarness()


def test_a_cancel_marks_what_a_worker_may_have(harness: OrchestratorHarness) -> None:
    marked = Marked()
    cancel = CancelJob(harness.store, harness.relay, harness.clock, marked)
    job_id = harness.submit()
    cancel(CALLER, job_id, "not wanted")
    assert marked.found == {job_id: 1}
    marked.found.clear()
    cancel(CALLER, job_id, "again, since the first answer was lost")
    assert marked.found == {job_id: 1}
    harness.retry_jobs.one(CALLER, job_id)
    cancel(CALLER, job_id, "not wanted")
    assert marked.found == {job_id: 2}


def test_a_cancel_of_a_batch_marks_each_of_its_jobs_that_is_fetched(database_url: str) -> None:
    marked = Marked()
    with postgres_jobs(database_url) as jobs:
        batch = jobs.send(urls=[f"https://example.com/{at}" for at in range(3)])
        fetched = {job.job_id: 1 for job in jobs.find() if job.status == "scraping"}
        assert fetched
        CancelBatch(jobs.store, Sent(), FrozenClock(), marked)(CALLER, batch.batch_id or "", "stop")
    assert marked.found == fetched
