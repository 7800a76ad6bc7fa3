"""Requests and answers of the Scraper's HTTP endpoints."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from indexmill.contracts.texts import Identifier, Url


class ScrapeRequest(BaseModel):
    """One URL."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Url
    job_id: Identifier | None = None
    """The job it is done for; only internal callers may name one when they enqueue."""


class ScrapeResult(BaseModel):
    """What was found behind the URL."""

    url: str
    """The URL that was asked for, canonical."""
    final_url: str
    """Where redirects ended."""
    title: str | None
    markdown: str
    content_type: str
    language: str | None
    content_sha256: str
    """Digest of the raw content."""
    size: int
    """Bytes of the raw content."""
    elapsed_ms: int
    job_id: str | None = None


class EnqueueResponse(BaseModel):
    """The URL waits in the queue."""

    job_id: str | None = None
    status: Literal["queued"] = "queued"
