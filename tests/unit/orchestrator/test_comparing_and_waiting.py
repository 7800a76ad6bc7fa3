"""The pure parts: which failures can be helped, what explains a difference, and who waits for whom."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from indexmill.contracts.job import JobError, JobStatus
from indexmill.orchestrator.actions.replay import compare
from indexmill.orchestrator.actions.retry import stage_to_resume
from indexmill.orchestrator.store.texts import retryable

FACTS: dict[str, Any] = {
    "content_sha256": "c",
    "content_type": "text/html",
    "extractor": "1",
    "text_sha256": "t",
    "chunks_sha256": "k",
    "chunk_settings": {"max_tokens": 256},
    "model": "m",
    "dimension": 4,
}


def error(code: str) -> JobError:
    return JobError(stage="scraping", code=code, message="m", at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("code", "helped"),
    [
        ("max_retries_exceeded", True),
        ("poison_message", True),
        ("stuck_timeout", True),
        ("canceled", True),
        ("dependency_failed", True),
        ("http_503", True),
        ("http_429", True),
        ("http_404", False),
        ("http_403", False),
        ("robots_disallowed", False),
        ("empty_content", False),
        ("token_limit_exceeded", False),
        ("unheard_of", False),
    ],
)
def test_a_passing_cause_can_be_helped_by_another_try(code: str, helped: bool) -> None:
    assert retryable(JobStatus.FAILED, error(code)) is helped
    assert not retryable(JobStatus.SCRAPING, None)


@pytest.mark.shows("P049")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"text_sha256": "x"}, {"text": "The same content was read differently."}),
        ({"text_sha256": "x", "extractor": "2"}, {"text": "The extractor changed."}),
        ({"extractor": "2"}, {}),
        ({"chunks_sha256": "x"}, {"chunks": "The chunker or its tokenizer changed."}),
        (
            {"chunks_sha256": "x", "chunk_settings": {"max_tokens": 128}},
            {"chunks": "The chunk settings changed."},
        ),
        ({"chunks_sha256": "x", "chunker": "2", "tokenizer": "t"}, {"chunks": "The chunker changed."}),
        ({"chunks_sha256": "x", "tokenizer": "t"}, {"chunks": "The tokenizer changed."}),
        ({"chunker": "2"}, {}),
        ({"model": "n"}, {"model": "Another embedding model is configured."}),
        ({"dimension": 8}, {"model": "Another embedding model is configured."}),
        (
            {"content_sha256": "x", "text_sha256": "x"},
            {"content": "The site serves something else.", "text": "The content changed."},
        ),
    ],
)
def test_a_difference_is_explained_by_what_was_noted(change: dict[str, Any], why: dict[str, str]) -> None:
    parts = compare(FACTS, {**FACTS, **change})
    assert {part.part: part.why for part in parts if part.verdict == "changed"} == why


def test_what_was_not_noted_is_unknown() -> None:
    parts = compare(FACTS, {"content_sha256": "c"})
    assert [part.verdict for part in parts] == ["same", "unknown", "unknown", "unknown"]


@pytest.mark.parametrize(
    ("failed", "kept", "outdated", "stage"),
    [
        ("embedding", "scraping chunking embedding", False, "embedding"),
        ("embedding", "scraping chunking", False, "chunking"),
        ("embedding", "scraping chunking embedding", True, "scraping"),
        ("chunking", "scraping chunking embedding", False, "chunking"),
        ("scraping", "scraping", False, "scraping"),
        ("embedding", "", False, "scraping"),
        ("unheard-of", "scraping chunking", False, "scraping"),
    ],
)
def test_a_retry_resumes_where_a_payload_is_kept(failed: str, kept: str, outdated: bool, stage: str) -> None:
    assert stage_to_resume(failed, dict.fromkeys(kept.split(), "{}"), None, outdated=outdated) == stage
