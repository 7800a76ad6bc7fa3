"""The internal callback over HTTP."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import StageCompletePayload
from indexmill.contracts.messages import ChunkTask, read
from indexmill.orchestrator.results.complete import CompleteStage
from tests.support.jobs import CALLER, INTERNAL
from tests.support.orchestrator import OrchestratorHarness

AHEAD = {"stage": "embedding", "status": "success", "result": {"chunk_count": 1}}
SCRAPED = {"stage": "scraping", "status": "success", "result": {"text": "Words."}}
CHUNK = {"ordinal": 0, "text": "x", "start": 0, "end": 1, "tokens": 1}
FAILED = {"stage": "scraping", "status": "failed", "error_code": "http_500", "error_message": "m"}


def complete(
    p: OrchestratorHarness, job_id: str, payload: dict[str, object], ctx: CallerContext = INTERNAL
) -> str:
    use_case = CompleteStage(p.record, p.relay)
    return use_case(ctx, job_id, StageCompletePayload.model_validate(payload)).status


def test_the_callback_walks_the_pipeline() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    assert complete(p, job_id, SCRAPED) == "chunking"
    p.chunk_all()
    assert p.status(job_id) == "embedding"
    assert complete(p, job_id, SCRAPED) == "already_advanced"
    assert complete(p, job_id, AHEAD) == "done"
    assert complete(p, job_id, FAILED) == "already_advanced"


def test_the_callback_reports_a_failure() -> None:
    p = OrchestratorHarness()
    assert complete(p, p.submit(), FAILED) == "job_failed"


@pytest.mark.shows("B75", "B82")
@pytest.mark.shows("S6")
@pytest.mark.parametrize(
    ("ctx", "job", "report", "code"),
    [
        (CALLER, "own", FAILED, "forbidden"),
        (CALLER, "none", FAILED, "forbidden"),
        (INTERNAL, "none", FAILED, "not_found"),
        (INTERNAL, "own", AHEAD, "invalid_transition"),
        (INTERNAL, "own", {**SCRAPED, "result": {"x": 1}}, "validation_error"),
        (INTERNAL, "own", {"stage": "scraping", "status": "success"}, "validation_error"),
    ],
)
def test_the_callback_refuses(ctx: CallerContext, job: str, report: dict[str, object], code: str) -> None:
    p = OrchestratorHarness()
    job_id = p.submit() if job == "own" else "unknown"
    with pytest.raises(CallerError) as caught:
        complete(p, job_id, report, ctx)
    assert caught.value.code == code


HUGE = 10**12


@pytest.mark.shows("B82")
@pytest.mark.parametrize(
    ("stage", "result"),
    [
        *(("embedding", {"chunk_count": count}) for count in (-1, True, "7", 1.9, HUGE, None)),
        *(
            ("embedding", more)
            for more in ({}, {"chunk_count": 1, "model": "a\x00"}, {"chunk_count": 1, "x": 1})
        ),
        *(("scraping", {"text": text}) for text in (None, 1, ["x"])),
        *(("scraping", {"text": "x", "title": title}) for title in (1, "x" * 1001)),
        ("scraping", {"text": "x", "final_url": "https://a.example/".ljust(2049, "x")}),
        *(
            ("chunking", {"chunks": chunks})
            for chunks in ("x", [{}], [{**CHUNK, "start": HUGE}], [{**CHUNK, "x": 1}])
        ),
    ],
)
def test_a_result_with_a_value_of_the_wrong_kind_is_refused(stage: str, result: dict[str, object]) -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    with pytest.raises(CallerError) as caught:
        complete(p, job_id, {"stage": stage, "status": "success", "result": result})
    assert (caught.value.code, caught.value.field) == ("validation_error", "body.result")
    assert p.status(job_id) == "scraping"


@pytest.mark.shows("B10", "B82")
def test_control_characters_of_a_reported_text_become_spaces() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    report = {**SCRAPED, "result": {"text": "One\x01two\ufffethree\n", "title": "A\x07title"}}
    assert complete(p, job_id, report) == "chunking"
    (task,) = [read(ChunkTask, body) for body in p.chunk.bodies]
    assert (task.text, task.title) == ("One two three\n", "A title")
