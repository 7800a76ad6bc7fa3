"""The HTTP answer of a synchronous scrape."""

from __future__ import annotations

from typing import Final

from indexmill.contracts.content import Document
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_scraper import ScrapeResult

MAX_ANSWER_TEXT_BYTES: Final = 4 * 1024 * 1024


def scrape_result(document: Document, *, job_id: str | None, elapsed_ms: int) -> ScrapeResult:
    """Return what the caller gets. Raises CallerError(response_too_large) when the text is by reference."""
    if document.text is None:
        raise CallerError(
            ErrorCode.RESPONSE_TOO_LARGE,
            "The page has more than 4 MiB of text.",
            hint="Submit the URL with POST /orchestrator/jobs.",
        )
    return ScrapeResult(
        url=document.url,
        final_url=document.final_url,
        title=document.title,
        markdown=document.text,
        content_type=document.content_type,
        language=document.language,
        content_sha256=document.content_sha256,
        size=document.raw_ref.size if document.raw_ref is not None else 0,
        elapsed_ms=elapsed_ms,
        job_id=job_id,
    )
