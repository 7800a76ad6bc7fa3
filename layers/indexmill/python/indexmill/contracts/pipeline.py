"""The pipeline: one row per stage. The only source of order, retries, budgets and user texts.

What a stage does differently is one module of `orchestrator/stages/`. A test holds the job statuses, the SQL
constraints, the template and the published contract equal to these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of every job."""

    name: str
    """Also the job's status while the stage runs."""
    next: str
    """Job status after success."""
    queue: str
    """Prefix of the queue in settings and template: `scrape` for SCRAPE_QUEUE_URL and ScrapeQueue."""
    budget_s: int
    """Time-out of the worker's function, in seconds."""
    in_progress: str
    """User text while the stage runs."""
    on_failure: str
    """User text after a failure whose code has no text of its own."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """User texts by error code; they win over `on_failure`."""
    max_retries: int = 3
    """Tries after the first; the worker counts them."""
    max_backoff_s: float = 300.0
    """Longest wait between two tries that the worker chooses, in seconds."""
    publishes: bool = False
    """Whether the stage's work becomes visible to search, and so is fenced by generations."""
    breakers: tuple[str, ...] = ()
    """Breakers that pause the stage while one of them is open."""


STAGES: Final = (
    Stage(
        name="scraping",
        next="chunking",
        queue="scrape",
        budget_s=60,
        in_progress="Fetching content…",
        on_failure="Could not fetch the URL. Check that it is accessible.",
        # The first two are the product's own copy.
        texts={
            "http_403": "The URL is blocked. Check that it is publicly accessible.",
            "connection_timeout": "Could not reach the URL. Check your network and try again.",
            "http_404": "There is no page at this URL. Check the address.",
            "http_410": "The page at this URL was removed.",
            "http_401": "The page asks for a login. Only public pages can be indexed.",
            "robots_disallowed": "The site does not allow automated access to this page.",
            "robots_noindex": "The page asks not to be indexed.",
            "robots_unavailable": "The site's access rules could not be read. Try again later.",
            "empty_content": "The page has no readable text.",
            "unsupported_content_type": "This type of file cannot be indexed yet.",
            "content_too_large": "The document is too large to index.",
            "content_bomb": "The document is too large to index.",
            "dns_error": "The site's address could not be found. Check the spelling of the URL.",
            "connection_refused": "The site did not answer. Try again later.",
            "connection_error": "The connection to the site broke. Try again later.",
            "read_timeout": "The site took too long to answer. Try again later.",
            "deadline_exceeded": "The site took too long to answer. Try again later.",
            "tls_error": "The site's security certificate could not be verified.",
            "too_many_redirects": "The URL redirects too often.",
            "other_host": "The page redirects to another host, which does not belong to the crawl.",
            "url_host_not_allowed": "This address is not on the public internet.",
            "parse_error": "The document could not be read. It may be damaged or protected.",
            "http_429": "The site gets too many requests at the moment. Try again later.",
            "renderer_unavailable": "The browser that this page needs is not available. Try again later.",
        },
    ),
    Stage(
        name="chunking",
        next="embedding",
        queue="chunk",
        budget_s=60,
        in_progress="Processing content…",
        on_failure="Content could not be processed. Try a different URL or format.",
        texts={
            "too_many_chunks": "Document is too large to index. Try a smaller section.",
            "empty_content": "The page has no readable text.",
        },
    ),
    Stage(
        name="embedding",
        next="done",
        queue="embed",
        budget_s=120,
        in_progress="Indexing content…",
        on_failure="Indexing failed. This may be a temporary issue — try again.",
        # The first two are the product's own copy.
        texts={
            "openai_rate_limit": "Indexing failed temporarily. Try again in a few minutes.",
            "token_limit_exceeded": "Document is too large to index. Try a smaller section.",
            "embedding_unavailable": "The embedding service did not answer. Try again in a few minutes.",
            "search_unavailable": "The search index did not answer. Try again in a few minutes.",
            "embedding_rejected": "The embedding service refused the text of this document.",
        },
        max_retries=5,
        publishes=True,
        breakers=("embedding", "index"),
    ),
)

BY_NAME: Final = {stage.name: stage for stage in STAGES}
ORDER: Final = {stage.name: position for position, stage in enumerate(STAGES)}
TRANSITIONS: Final = {stage.name: stage.next for stage in STAGES}
"""Status after each stage's success."""
FIRST: Final = STAGES[0].name
EVERY_STAGE: Final = "*"
"""In a pause's row: all of them."""

if TYPE_CHECKING:
    StageName = str
else:
    StageName = Literal[tuple(stage.name for stage in STAGES)]
    """A stage's name, for models: their schemas list the names."""
