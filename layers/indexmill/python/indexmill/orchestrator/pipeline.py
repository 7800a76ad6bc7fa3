"""The pipeline's topology, all of it: adding a stage is a row here, a service and its template entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexmill.contracts.job import JobError, JobStatus, Progress


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of every job."""

    name: str
    """Also the job's status while the stage runs."""
    next: str
    """Status after success."""
    max_retries: int
    """Tries after the first; the worker counts them."""
    budget_s: int
    """Seconds that one try may take."""
    in_progress: str
    """What a person reads while the stage runs."""
    on_failure: str
    """What a person reads when it failed and the code has no text of its own."""


STAGES: Final = (
    Stage(
        name="scraping",
        next="chunking",
        max_retries=3,
        budget_s=60,
        in_progress="Fetching content…",
        on_failure="Could not fetch the URL. Check that it is accessible.",
    ),
    Stage(
        name="chunking",
        next="embedding",
        max_retries=3,
        budget_s=60,
        in_progress="Processing content…",
        on_failure="Content could not be processed. Try a different URL or format.",
    ),
    Stage(
        name="embedding",
        next="done",
        max_retries=5,
        budget_s=120,
        in_progress="Indexing content…",
        on_failure="Indexing failed. This may be a temporary issue — try again.",
    ),
)

BY_NAME: Final = {stage.name: stage for stage in STAGES}
ORDER: Final = {stage.name: position for position, stage in enumerate(STAGES)}
TRANSITIONS: Final = {stage.name: stage.next for stage in STAGES}
"""Status after each stage's success."""
FIRST: Final = STAGES[0].name

PENDING_MESSAGE: Final = "Job queued"
DONE_MESSAGE: Final = "Document indexed — ready to search"

# Text for one precise code; it wins over the stage's. The first four are the product's own copy.
CODE_MESSAGES: Final[dict[tuple[str, str], str]] = {
    ("scraping", "http_403"): "The URL is blocked. Check that it is publicly accessible.",
    ("scraping", "connection_timeout"): "Could not reach the URL. Check your network and try again.",
    ("embedding", "openai_rate_limit"): "Indexing failed temporarily. Try again in a few minutes.",
    ("embedding", "token_limit_exceeded"): "Document is too large to index. Try a smaller section.",
    ("scraping", "http_404"): "There is no page at this URL. Check the address.",
    ("scraping", "http_410"): "The page at this URL was removed.",
    ("scraping", "http_401"): "The page asks for a login. Only public pages can be indexed.",
    ("scraping", "robots_disallowed"): "The site does not allow automated access to this page.",
    ("scraping", "robots_unavailable"): "The site's access rules could not be read. Try again later.",
    ("scraping", "empty_content"): "The page has no readable text.",
    ("scraping", "unsupported_content_type"): "This type of file cannot be indexed yet.",
    ("scraping", "content_too_large"): "The document is too large to index.",
    ("scraping", "content_bomb"): "The document is too large to index.",
    ("scraping", "dns_error"): "The site's address could not be found. Check the spelling of the URL.",
    ("scraping", "connection_refused"): "The site did not answer. Try again later.",
    ("scraping", "connection_error"): "The connection to the site broke. Try again later.",
    ("scraping", "read_timeout"): "The site took too long to answer. Try again later.",
    ("scraping", "deadline_exceeded"): "The site took too long to answer. Try again later.",
    ("scraping", "tls_error"): "The site's security certificate could not be verified.",
    ("scraping", "too_many_redirects"): "The URL redirects too often.",
    ("scraping", "url_host_not_allowed"): "This address is not on the public internet.",
    ("scraping", "parse_error"): "The document could not be read. It may be damaged or protected.",
    ("chunking", "too_many_chunks"): "Document is too large to index. Try a smaller section.",
    ("chunking", "empty_content"): "The page has no readable text.",
}
_ANY_STAGE: Final = {
    "canceled": "Job canceled",
    "dependency_failed": "A document that this one waits for could not be indexed.",
    "poison_message": "This document could not be processed. Try a different URL or format.",
}


def user_message(status: JobStatus, error: JobError | None) -> str:
    """Return the sentence to show for a job: the precise cause speaks first, then code, then stage."""
    if status is JobStatus.PENDING:
        return PENDING_MESSAGE
    if status is JobStatus.DONE:
        return DONE_MESSAGE
    if status is not JobStatus.FAILED:
        return BY_NAME[status.value].in_progress
    if error is None or error.stage not in BY_NAME:
        return STAGES[0].on_failure
    for code in (error.cause, error.code):
        text = CODE_MESSAGES.get((error.stage, code or "")) or _ANY_STAGE.get(code or "")
        if text:
            return text
    return BY_NAME[error.stage].on_failure


def progress(status: JobStatus, failed_stage: str | None) -> Progress:
    """Return the stage number to show: 0 while pending, all when done, the failed one after a failure."""
    total = len(STAGES)
    if status is JobStatus.DONE:
        return Progress(stage=total, of=total)
    at = failed_stage if status is JobStatus.FAILED else status.value
    return Progress(stage=ORDER.get(at or "", -1) + 1, of=total)
