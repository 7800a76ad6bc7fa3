"""Texts for people, verbatim as the product documents them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from indexmill.contracts.job import JobError, JobStatus
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.store.texts import progress, user_message
from tests.support.error_codes import is_known_code


def error(stage: str, code: str, cause: str | None = None) -> JobError:
    return JobError(stage=stage, code=code, message="m", at=datetime(2026, 3, 14, tzinfo=UTC), cause=cause)


@pytest.mark.parametrize(
    ("status", "text", "stage"),
    [
        ("pending", "Job queued", 0),
        ("scraping", "Fetching content…", 1),
        ("chunking", "Processing content…", 2),
        ("embedding", "Indexing content…", 3),
        ("done", "Document indexed — ready to search", 3),
    ],
)
def test_each_status_has_its_text_and_stage_of_three(status: str, text: str, stage: int) -> None:
    assert user_message(JobStatus(status), None) == text
    assert progress(JobStatus(status), None).model_dump() == {"stage": stage, "of": 3}


@pytest.mark.parametrize(
    ("stage", "code", "text"),
    [
        ("scraping", "internal_error", "Could not fetch the URL. Check that it is accessible."),
        ("chunking", "internal_error", "Content could not be processed. Try a different URL or format."),
        ("embedding", "internal_error", "Indexing failed. This may be a temporary issue — try again."),
        ("scraping", "http_403", "The URL is blocked. Check that it is publicly accessible."),
        ("scraping", "connection_timeout", "Could not reach the URL. Check your network and try again."),
        ("embedding", "openai_rate_limit", "Indexing failed temporarily. Try again in a few minutes."),
        ("embedding", "token_limit_exceeded", "Document is too large to index. Try a smaller section."),
    ],
)
def test_each_failure_has_its_text(stage: str, code: str, text: str) -> None:
    assert user_message(JobStatus.FAILED, error(stage, code)) == text


def test_a_precise_cause_speaks_before_the_exhausted_retries() -> None:
    failure = error("embedding", "max_retries_exceeded", cause="openai_rate_limit")
    text = "Indexing failed temporarily. Try again in a few minutes."
    assert user_message(JobStatus.FAILED, failure) == text


def test_progress_of_a_failed_job_is_the_stage_that_failed() -> None:
    assert progress(JobStatus.FAILED, "chunking").stage == 2


def test_every_code_with_a_text_is_a_known_code() -> None:
    assert all(is_known_code(code) for stage in STAGES for code in stage.texts)
