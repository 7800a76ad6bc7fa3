"""Rows and port of crawls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from indexmill.contracts.cost import Budget
from indexmill.contracts.crawl import CrawlKind, CrawlRules
from indexmill.contracts.texts import Accept


class CrawlPlan(BaseModel):
    """Fields that the jobs of a crawl share."""

    rules: CrawlRules
    tier: str
    caller_type: str
    job_type: str = "index"
    priority: int
    forced: bool
    mark_stale: bool
    budget: Budget | None = None
    request_id: str | None = None
    submitted_by: str | None = None
    max_age_s: int | None = None
    accept: Accept = None
    recipe: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Crawl:
    """A crawl; its id is that of its batch."""

    crawl_id: str
    caller_id: str
    kind: CrawlKind
    plan: CrawlPlan
    hosts: tuple[str, ...]
    pages: int = 1
    """Jobs so far."""
    canceled: bool = False


@dataclass(frozen=True, slots=True)
class CrawlPage:
    """A page of a crawl."""

    page: bytes
    """Digest of its URL."""
    job_id: str
    depth: int


@dataclass(frozen=True, slots=True)
class PageLinks:
    """Links of a document's raw content."""

    document_id: str
    content_sha256: str
    links: Sequence[str]


class CrawlsTx(Protocol):
    """Row operations of crawls. The pages of one are written while its row is locked."""

    def add_crawl(self, crawl: Crawl, first: CrawlPage) -> None:
        """Insert a crawl with its first page."""
        ...

    def pages_to_come(self, caller_id: str) -> int:
        """Return how many jobs the caller's crawls may still add; those whose jobs have ended add none."""
        ...

    def lock_crawls(self, crawl_ids: Sequence[str]) -> dict[str, Crawl]:
        """Lock and return the crawls."""
        ...

    def depths(self, crawl_id: str, pages: Collection[bytes]) -> dict[bytes, int]:
        """Return the depth of those of `pages` that the crawl has."""
        ...

    def lessen_depths(self, crawl_id: str, depths: Mapping[bytes, int]) -> dict[str, int]:
        """Write lesser depths of pages; return those of documents that were read before, by id."""
        ...

    def add_pages(self, crawl_id: str, pages: Sequence[CrawlPage], hosts: Collection[str]) -> None:
        """Insert pages whose jobs were inserted, and note what are the crawl's hosts now."""
        ...

    def links_of(self, document_ids: Collection[str]) -> dict[str, list[str]]:
        """Return the kept links, by document, and note that they are used."""
        ...

    def keep_links(self, links: Sequence[PageLinks]) -> None:
        """Keep links in place of the documents' older ones."""
        ...

    def cancel_crawl(self, caller_id: str, crawl_id: str) -> bool:
        """Let a crawl add no more pages; False when there is no such crawl of the caller."""
        ...

    def crawl(self, caller_id: str, crawl_id: str) -> Crawl | None:
        """Return the caller's crawl."""
        ...
