"""Log lines of the Orchestrator about jobs: each has the job's id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexmill.contracts.messages import ChunkTask, EmbedTask, read
from indexmill.orchestrator.results.apply import ApplyResults, Recorder
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


@pytest.mark.shows("R106")
def test_lines_about_a_result_have_its_job_stage_attempt_and_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = OrchestratorHarness()
    record = Recorder(p.store, Decider(p.clock), Observability("result-lines", level="INFO"))
    done, broken = p.submit(), p.submit()
    asked = {"request_id": "req-7", "elapsed_ms": 12}
    record([scraped(done).model_copy(update=asked), failed(broken, code="http_404").model_copy(update=asked)])
    applied, refused = [
        line for line in lines(capsys) if line.get("message") in ("result.applied", "stage.failed")
    ]
    same = {"stage": "scraping", "attempt": 1, "request_id": "req-7", "elapsed_ms": 12}
    assert applied.items() >= {**same, "job_id": done, "verdict": "advance"}.items()
    assert refused.items() >= {**same, "job_id": broken, "code": "http_404"}.items()


@pytest.mark.shows("R106")
def test_a_result_that_fails_unexpectedly_is_a_line_with_its_ids(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    p = OrchestratorHarness()
    job_id = p.submit()

    def fails(_work: object) -> None:
        raise RuntimeError("a defect at https://site.example/?token=secret")

    p.record = Recorder(p.store, Decider(p.clock), Observability("failing-results"))
    p.results, p.chunking_paused = ApplyResults(p.record, p.relay), True
    monkeypatch.setattr(p.store, "transaction", fails)
    p.deliver(scraped(job_id).model_copy(update={"request_id": "req-7"}))
    (line,) = [each for each in lines(capsys) if each.get("message") == "result.failed"]
    assert (
        line.items() >= {"job_id": job_id, "stage": "scraping", "attempt": 1, "request_id": "req-7"}.items()
    )
    assert "https://site.example/" in line["exception"]
    assert "secret" not in str(line)


@pytest.mark.shows("B88")
def test_a_rescued_job_is_a_line_and_a_count_without_the_query_of_its_url(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = SweeperHarness()
    job_id = p.submit("https://example.com/page?token=secret")
    p.scrape.bodies.clear()
    p.observability = Observability("rescue-lines")
    p.sweep = p.sweeper(p.view)
    p.tick(2)
    out = capsys.readouterr().out
    assert "secret" not in out
    found = [json.loads(line) for line in out.splitlines()]
    (rescued,) = [line for line in found if line.get("message") == "job.rescued"]
    assert (rescued["job_id"], rescued["url"]) == (job_id, "https://example.com/page")
    (count,) = [line for line in found if "jobs_rescued_total" in line]
    assert (count["jobs_rescued_total"], count["stage"]) == ([1.0], "scraping")
