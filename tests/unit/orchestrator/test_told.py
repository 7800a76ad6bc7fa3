"""Log lines of the Orchestrator about jobs: each has the job's id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexmill.contracts.messages import EmbedTask, read
from indexmill.orchestrator.results import Decider, Recorder
from indexmill.platform.observability import Observability
from tests.support.jobs import Pipeline, failed, scraped
from tests.support.sweeper import Sweeping


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().out.splitlines() if line.startswith("{")]


def test_a_failed_stage_is_one_line_with_its_job_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    p = Pipeline()
    record = Recorder(p.store, Decider(p.clock), Observability("told", level="INFO"))
    broken, fine = p.submit(), p.submit()
    report = failed(broken, code="http_404")
    record([report, scraped(fine), report])
    told = [line for line in lines(capsys) if line.get("message") in ("stage.failed", "result.applied")]
    by_verdict = [(line["message"], line["job_id"], line.get("verdict")) for line in told]
    assert by_verdict == [
        ("stage.failed", broken, None),
        ("result.applied", fine, "advance"),
        ("result.applied", broken, "late"),
    ]
    (failure, *_) = told
    assert failure["level"] == "WARNING"
    assert (failure["stage"], failure["code"], failure["tries"]) == ("scraping", "http_404", 1)
    assert failure["reason"] == "It did not work."


@pytest.mark.parametrize("late", [False, True], ids=["at once", "by the sweeper"])
def test_what_follows_from_a_call_has_the_request_that_caused_the_job(late: bool) -> None:
    p = Sweeping()
    jobs = [p.submit(), p.submit()]
    p.chunker.away = late
    reports = [scraped(job_id, text=f"Text of {job_id}.") for job_id in jobs]
    p.deliver(*(each.model_copy(update={"request_id": f"req of {each.job_id}"}) for each in reports))
    p.chunker.away = False
    p.tick()
    tasks = [read(EmbedTask, body) for body in p.embed.bodies]
    assert {task.job_id: task.request_id for task in tasks} == {each: f"req of {each}" for each in jobs}
    assert [item.request_id for item in p.chunker.calls[-1].items] == [f"req of {each}" for each in jobs]


def test_a_call_names_the_job_of_each_of_its_documents() -> None:
    p = Pipeline()
    jobs = [p.submit(), p.submit()]
    p.deliver(*(scraped(job_id, text=f"Text of {job_id}.") for job_id in jobs))
    (call,) = p.chunker.calls
    assert [(item.job_id, item.text) for item in call.items] == [(each, f"Text of {each}.") for each in jobs]
