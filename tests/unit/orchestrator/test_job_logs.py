"""Log lines of the Orchestrator about jobs: each has the job's id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexmill.contracts.messages import ChunkTask, EmbedTask, read
from indexmill.orchestrator.results.apply import Recorder
from indexmill.orchestrator.results.decide import Decider
from indexmill.platform.observability import Observability
from tests.support.jobs import failed, scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.support.sweeper import SweeperHarness


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().out.splitlines() if line.startswith("{")]


def test_a_failed_stage_is_one_line_with_its_job_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    p = OrchestratorHarness()
    record = Recorder(p.store, Decider(p.clock), Observability("job-logs", level="INFO"))
    broken, fine = p.submit(), p.submit()
    report = failed(broken, code="http_404")
    record([report, scraped(fine), report])
    reported = [line for line in lines(capsys) if line.get("message") in ("stage.failed", "result.applied")]
    by_verdict = [(line["message"], line["job_id"], line.get("verdict")) for line in reported]
    assert by_verdict == [
        ("stage.failed", broken, None),
        ("result.applied", fine, "advance"),
        ("result.applied", broken, "late"),
    ]
    (failure, *_) = reported
    assert failure["level"] == "WARNING"
    assert (failure["stage"], failure["code"], failure["tries"]) == ("scraping", "http_404", 1)
    assert failure["reason"] == "It did not work."


@pytest.mark.parametrize("late", [False, True], ids=["at once", "by the sweeper"])
def test_every_later_message_has_the_request_that_caused_the_job(late: bool) -> None:
    p = SweeperHarness()
    jobs = [p.submit(), p.submit()]
    p.chunk.unavailable = late
    reports = [scraped(job_id, text=f"Text of {job_id}.") for job_id in jobs]
    p.deliver(*(each.model_copy(update={"request_id": f"req of {each.job_id}"}) for each in reports))
    p.chunk.unavailable = False
    p.tick()
    p.chunk_all()
    tasks = [read(EmbedTask, body) for body in p.embed.bodies]
    assert {task.job_id: task.request_id for task in tasks} == {each: f"req of {each}" for each in jobs}


def test_a_chunk_message_carries_its_job_and_text() -> None:
    p = OrchestratorHarness()
    p.chunking_paused = True
    jobs = [p.submit(), p.submit()]
    p.deliver(*(scraped(job_id, text=f"Text of {job_id}.") for job_id in jobs))
    tasks = [read(ChunkTask, body) for body in p.chunk.bodies]
    assert [(task.job_id, task.text, task.title) for task in tasks] == [
        (each, f"Text of {each}.", "Title") for each in jobs
    ]
