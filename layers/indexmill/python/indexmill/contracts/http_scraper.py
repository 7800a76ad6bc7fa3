"""Requests and answers of the Scraper's HTTP endpoints."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.content import PageMetadata
from indexmill.contracts.identity import Accept, Identifier, Url


class ScrapeRequest(BaseModel):
    """One URL."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Url
    job_id: Identifier | None = None
    """The job it is done for; only internal callers may name one when they enqueue."""


Format = Literal["markdown", "html"]


class ScrapeNowRequest(ScrapeRequest):
    """One URL, and what is wanted of it."""

    formats: list[Format] = Field(default=["markdown"], min_length=1, max_length=2)
    only_main_content: bool = True
    """False: navigation, header, footer and everything else that a browser shows is part of the text too."""
    accept: Accept = None
    """As of a submit."""


class ScrapeResult(BaseModel):
    """What was found behind the URL."""

    url: str
    """The URL that was asked for, canonical."""
    final_url: str
    """Where redirects ended."""
    title: str | None
    markdown: str | None = None
    """Null when it was not asked for."""
    html: str | None = None
    """The part of a web page that was read, in the site's own markup without scripts and styles; not safe to
    show as it is. Null when it was not asked for, and for other content."""
    metadata: PageMetadata = PageMetadata()
    content_type: str
    language: str | None
    content_sha256: str
    """Digest of the raw content."""
    size: int
    """Bytes of the raw content."""
    rendered: bool = False
    """Whether a browser ran the page's scripts: the raw content is what they made of it."""
    elapsed_ms: int
    job_id: str | None = None


class EnqueueResponse(BaseModel):
    """The URL waits in the queue."""

    job_id: str | None = None
    status: Literal["queued"] = "queued"
