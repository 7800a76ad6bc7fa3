"""Faults hit running functions, and only as configured."""

from __future__ import annotations

import pytest

from local.faults.cloud import CALLBACKS
from local.faults.invariants import stale
from local.faults.rules import parse
from tests.faults.arena import Arena
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "fault",
    [
        "ScraperWorker/s3.PutObject@raw:error",
        "ScraperWorker/http.get@page:error",
        "ScraperWorker/http.get@page:execute_then_error",
        "EmbeddingWorker/http.post@embeddings:error",
        "EmbeddingWorker/http.post@embeddings:delay=0.5",
        "EmbeddingWorker/postgres.execute@copy-vectors:error",
        "EmbeddingWorker/postgres.commit:kill_before",
        "OrchestratorApi/postgres.commit:error",
        "OrchestratorApi/sqs.SendMessageBatch:kill_before",
        pytest.param("poller/sqs.DeleteMessageBatch@EmbedQueue:errorx3", marks=pytest.mark.fault("F24")),
        pytest.param("poller/sqs.ReceiveMessage@ScrapeQueue:errorx2", marks=pytest.mark.fault("F24")),
    ],
)
def test_a_fault_happens_and_the_job_survives_it(kept: Arena, fault: str) -> None:
    rule = parse(fault)
    before = len(kept.control.fired())
    kept.control.arm([rule])
    kept.end_with_sweeps([kept.submit(kept.page(kept.token("fault")))])
    # A message is deleted after its function returned: its job may be done before.
    eventually(lambda: len(kept.control.fired()) > before, "the fault happens")
    assert {each["rule"] for each in kept.control.fired()[before:]} == {rule.text}


@pytest.mark.fault("F13")
def test_a_stale_attempt_changes_nothing(kept: Arena) -> None:
    before_both = len(kept.control.fired())
    # Both attempts' messages are lost: the job gets results from this test alone.
    kept.control.arm([parse("OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue:losex2")])
    job = kept.submit(kept.page(kept.token("attempt")))
    stale.late_failures(kept.cloud, job.job_id, attempt=1)
    eventually(lambda: kept.statuses([job])[job.job_id] == "failed", "the first attempt fails")
    with kept.stack.http() as caller, kept.cloud.database() as database:
        retried = caller.post(f"/orchestrator/jobs/{job.job_id}/retry")
        assert (retried.status_code, retried.json()["attempt"]) == (202, 2)
        before = stale.snapshot(database, job.job_id)
        assert (before[0]["status"], before[0]["attempt"]) == ("scraping", 2)
        sent = stale.late_failures(kept.cloud, job.job_id, attempt=1)
        eventually(lambda: stale.all_processed(database, sent), "the stale results were looked at")
        assert stale.differences(database, job.job_id, before) == []
    assert len(kept.control.fired()) == before_both + 2
    kept.control.arm()
    kept.end_with_sweeps([job])


def test_a_result_that_comes_after_the_end_changes_nothing(kept: Arena) -> None:
    job = kept.submit(kept.page(kept.token("stale")))
    eventually(lambda: kept.ended([job]), "the job ends")
    eventually(lambda: not any(kept.cloud.depths().values()), "everything is quiet")
    with kept.cloud.database() as database:
        before = stale.snapshot(database, job.job_id)
        sent = stale.late_failures(kept.cloud, job.job_id, attempt=1)
        eventually(lambda: stale.all_processed(database, sent), "the late results were looked at")
        assert kept.cloud.depths()[CALLBACKS] <= len(sent)
        assert stale.differences(database, job.job_id, before) == []
