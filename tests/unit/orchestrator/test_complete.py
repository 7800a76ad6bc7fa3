"""The internal callback over HTTP."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_jobs import StageCompletePayload
from indexmill.contracts.identity import CallerContext
from indexmill.orchestrator.results.complete import CompleteStage
from tests.support.jobs import CALLER, INTERNAL
from tests.support.orchestrator import OrchestratorHarness

AHEAD = {"stage": "embedding", "status": "success", "result": {"chunk_count": 1}}
SCRAPED = {"stage": "scraping", "status": "success", "result": {"text": "Words."}}
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
