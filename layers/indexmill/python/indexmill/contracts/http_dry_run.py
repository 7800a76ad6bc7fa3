"""Answer to a submit that was only tried out."""

from __future__ import annotations

from pydantic import BaseModel


class DryRunError(BaseModel):
    """Error that a page's job would fail with."""

    code: str
    message: str
    """With the rule, where robots.txt or the page itself refuses."""


class DryRunPage(BaseModel):
    """One URL, fetched once."""

    url: str
    allowed: bool | None
    """Whether robots.txt and the page's own rules let it be indexed."""
    error: DryRunError | None
    """What its job would fail with; null when it would not."""
    final_url: str | None
    """Where redirects ended."""
    content_type: str | None
    title: str | None
    size: int | None
    """Bytes of the content."""
    chunks: int | None
    """Estimate."""
    usd: float | None
    """Estimate of what its job costs when all of it is new."""


class DryRun(BaseModel):
    """Outcome that a submit would have. No job was made."""

    pages: list[DryRunPage]
    jobs: int
    """Jobs that it would make, at most: of a crawl and a sitemap `max_pages`."""
    chunks: int
    """Estimate over the pages that were looked at."""
    usd: float
    """Estimate over them; of a crawl and a sitemap as if each of `jobs` were like the first page."""
    pending: int
    """Jobs of the caller that are pending now."""
    max_pending: int
    """How many may be."""
