"""Crawls and links of pages: tables of the twin of the job store. Docstrings are the port's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.store.crawls import Crawl, CrawlPage, PageLinks

Row = dict[str, Any]
CRAWL_TABLES: Final = ("crawls", "page_links")


@dataclass(kw_only=True)
class CrawlTables:
    """Tables, and row operations over them and the jobs."""

    jobs: dict[str, Row] = field(default_factory=dict)
    crawls: dict[str, dict[Any, Any]] = field(default_factory=dict)
    """By id: the crawl, and its pages by digest."""
    page_links: dict[str, Row] = field(default_factory=dict)
    """By document."""

    def add_crawl(self, crawl: Crawl, first: CrawlPage) -> None:
        self.crawls.setdefault(crawl.crawl_id, {"crawl": crawl, first.page: first})

    def pages_to_come(self, caller_id: str) -> int:
        at_work = {row["batch_id"] for row in self.jobs.values() if row["status"] not in ("done", "failed")}
        own = [row["crawl"] for row in self.crawls.values() if row["crawl"].caller_id == caller_id]
        return sum(
            each.plan.rules.max_pages - each.pages
            for each in own
            if each.crawl_id in at_work and not each.canceled
        )

    def lock_crawls(self, crawl_ids: Sequence[str]) -> dict[str, Crawl]:
        return {each: self.crawls[each]["crawl"] for each in crawl_ids}

    def crawl(self, caller_id: str, crawl_id: str) -> Crawl | None:
        found: Crawl | None = self.crawls.get(crawl_id, {}).get("crawl")
        return found if found is not None and found.caller_id == caller_id else None

    def cancel_crawl(self, caller_id: str, crawl_id: str) -> bool:
        found = self.crawl(caller_id, crawl_id)
        if found is not None:
            self.crawls[crawl_id]["crawl"] = replace(found, canceled=True)
        return found is not None

    def depths(self, crawl_id: str, pages: Collection[bytes]) -> dict[bytes, int]:
        row = self.crawls[crawl_id]
        return {page: row[page].depth for page in pages if page in row}

    def lessen_depths(self, crawl_id: str, depths: Mapping[bytes, int]) -> dict[str, int]:
        row, read = self.crawls[crawl_id], {}
        for page, depth in depths.items():
            row[page] = replace(row[page], depth=depth)
            job = self.jobs[row[page].job_id]
            if job["status"] not in ("pending", FIRST):
                read[job["document_id"]] = depth
        return read

    def add_pages(self, crawl_id: str, pages: Sequence[CrawlPage], hosts: Collection[str]) -> None:
        row = self.crawls[crawl_id]
        assert not row.keys() & {each.page for each in pages}
        row |= {each.page: each for each in pages}
        row["crawl"] = replace(
            row["crawl"], pages=row["crawl"].pages + len(pages), hosts=tuple(sorted(hosts))
        )

    def links_of(self, document_ids: Collection[str]) -> dict[str, list[str]]:
        return {each: self.page_links[each]["links"] for each in document_ids if each in self.page_links}

    def keep_links(self, links: Sequence[PageLinks]) -> None:
        for each in links:
            self.page_links[each.document_id] = {
                "content_sha256": each.content_sha256,
                "links": list(each.links),
            }

    # Duplicates are left out: what needs them runs on Postgres.

    def lock_originals(self, documents: Collection[str]) -> None:
        """Lock nothing."""

    def originals_of(self, documents: Collection[str]) -> dict[str, str]:
        return {}

    def published_texts(self, documents: Collection[str]) -> dict[str, Any]:
        return {}

    def keep_duplicates(self, read: Collection[str], rows: Sequence[Any]) -> None:
        """Keep nothing."""

    def mark_outdated(
        self, originals: Collection[str], pages: Collection[str], unread: Collection[str]
    ) -> None:
        """Mark nothing."""

    def due_duplicates(self, most: int) -> list[Any]:
        return []
