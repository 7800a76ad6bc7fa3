"""Rows of crawls, their pages, and the links of pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.types.json import Jsonb
from pydantic import TypeAdapter

from indexmill.contracts.crawl import CrawlKind
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.store.rows import JobSpec
from indexmill.platform.postgres.database import Statements

_PLAN: Final = TypeAdapter(JobSpec)


@dataclass(frozen=True, slots=True)
class Crawl:
    """A crawl; its id is that of its batch."""

    crawl_id: str
    caller_id: str
    kind: CrawlKind
    plan: JobSpec
    """Of the jobs of its pages."""
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


class Crawls:
    """Row operations of crawls. The pages of one are written while its row is locked."""

    _sql: Statements

    def add_crawl(self, crawl: Crawl, first: CrawlPage) -> None:
        """Insert a crawl with its first page."""
        self._sql.do(
            "add_crawl",
            id=crawl.crawl_id,
            caller_id=crawl.caller_id,
            kind=crawl.kind,
            plan=Jsonb(_PLAN.dump_python(crawl.plan, mode="json", exclude_none=True)),
            max_pages=crawl.plan.rules.max_pages,
            hosts=list(crawl.hosts),
            page=first.page,
            job_id=first.job_id,
        )

    def pages_to_come(self, caller_id: str) -> int:
        """Return how many jobs the caller's crawls may still add; those whose jobs have ended add none."""
        row = self._sql.one("pages_to_come", caller_id=caller_id)
        return int(row["pages"]) if row else 0

    def lock_crawls(self, crawl_ids: Sequence[str]) -> dict[str, Crawl]:
        """Lock and return the crawls, in the order of ids."""
        return {row["id"]: _crawl(row) for row in self._sql.all("lock_crawls", ids=list(crawl_ids))}

    def depths(self, crawl_id: str, pages: Collection[bytes]) -> dict[bytes, int]:
        """Return the depth of those of `pages` that the crawl has."""
        found = self._sql.all("depths", id=crawl_id, pages=list(pages))
        return {bytes(row["page"]): row["depth"] for row in found}

    def lessen_depths(self, crawl_id: str, depths: Mapping[bytes, int]) -> dict[str, int]:
        """Write lesser depths of pages; return those of documents that were read before, by id."""
        found = self._sql.all(
            "lessen_depths", id=crawl_id, pages=list(depths), depths=list(depths.values()), first=FIRST
        )
        return {row["document_id"]: row["depth"] for row in found}

    def add_pages(self, crawl_id: str, pages: Sequence[CrawlPage], hosts: Collection[str]) -> None:
        """Insert pages whose jobs were inserted, and note what are the crawl's hosts now."""
        self._sql.do(
            "add_pages",
            id=crawl_id,
            pages=[each.page for each in pages],
            jobs=[each.job_id for each in pages],
            depths=[each.depth for each in pages],
            hosts=sorted(hosts),
        )

    def links_of(self, document_ids: Collection[str]) -> dict[str, list[str]]:
        """Return the kept links, by document, and note that they are used."""
        found = self._sql.all("links_of", documents=list(document_ids))
        return {row["document_id"]: row["links"].splitlines() for row in found}

    def keep_links(self, links: Sequence[PageLinks]) -> None:
        """Keep links in place of the documents' older ones."""
        self._sql.do(
            "keep_links",
            documents=[each.document_id for each in links],
            digests=[each.content_sha256 for each in links],
            links=["\n".join(each.links) for each in links],
        )

    def cancel_crawl(self, caller_id: str, crawl_id: str) -> bool:
        """Let a crawl add no more pages; False when there is no such crawl of the caller."""
        return self._sql.one("cancel_crawl", id=crawl_id, caller_id=caller_id) is not None

    def crawl(self, caller_id: str, crawl_id: str) -> Crawl | None:
        """Return the caller's crawl."""
        row = self._sql.one("crawl", id=crawl_id, caller_id=caller_id)
        return _crawl(row) if row else None


def _crawl(row: Mapping[str, Any]) -> Crawl:
    return Crawl(
        row["id"],
        row["caller_id"],
        row["kind"],
        _PLAN.validate_python(row["plan"]),
        tuple(row["hosts"]),
        row["pages"],
        row["canceled_at"] is not None,
    )
