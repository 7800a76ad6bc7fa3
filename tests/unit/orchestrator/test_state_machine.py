"""The pure state machine against a table written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.contracts.job import JobStatus
from indexmill.contracts.pipeline import ORDER, STAGES, TRANSITIONS
from indexmill.orchestrator.results.decide import advance
from indexmill.orchestrator.store.results import Verdict

STAGE_NAMES = [stage.name for stage in STAGES]


def test_the_pipeline_is_the_published_one() -> None:
    assert TRANSITIONS == {"scraping": "chunking", "chunking": "embedding", "embedding": "done"}


@pytest.mark.parametrize(
    ("status", "stage", "success", "verdict", "to"),
    [
        ("scraping", "scraping", True, Verdict.ADVANCE, "chunking"),
        ("chunking", "chunking", True, Verdict.ADVANCE, "embedding"),
        ("embedding", "embedding", True, Verdict.ADVANCE, "done"),
        ("scraping", "scraping", False, Verdict.FAIL, "failed"),
        ("embedding", "embedding", False, Verdict.FAIL, "failed"),
        ("chunking", "scraping", True, Verdict.LATE, None),
        ("embedding", "scraping", False, Verdict.LATE, None),
        ("done", "embedding", True, Verdict.LATE, None),
        ("failed", "embedding", True, Verdict.LATE, None),
        ("pending", "scraping", True, Verdict.EARLY, None),
        ("scraping", "embedding", True, Verdict.EARLY, None),
        ("scraping", "chunking", False, Verdict.EARLY, None),
    ],
)
def test_each_result_of_the_current_attempt(
    status: str, stage: str, success: bool, verdict: Verdict, to: str | None
) -> None:
    decision = advance(JobStatus(status), 2, stage=stage, result_attempt=2, success=success)
    assert decision.verdict is verdict
    assert decision.status == (JobStatus(to) if to else None)


@given(
    status=st.sampled_from(list(JobStatus)),
    stage=st.sampled_from(STAGE_NAMES),
    success=st.booleans(),
    attempt=st.integers(1, 5),
    result_attempt=st.integers(1, 5),
)
def test_the_fence_holds_everywhere(
    status: JobStatus, stage: str, success: bool, attempt: int, result_attempt: int
) -> None:
    decision = advance(status, attempt, stage=stage, result_attempt=result_attempt, success=success)
    moves = decision.verdict in (Verdict.ADVANCE, Verdict.FAIL)
    assert (decision.status is not None) == moves
    if result_attempt < attempt:
        assert decision.verdict is Verdict.LATE
    if result_attempt > attempt:
        assert decision.verdict is Verdict.EARLY
    if moves:
        assert status.value == stage
        assert result_attempt == attempt
        assert not status.terminal
    if decision.verdict is Verdict.ADVANCE and decision.status is not JobStatus.DONE and decision.status:
        assert ORDER[decision.status.value] == ORDER[stage] + 1
