"""Crawls: start one, and add jobs for the links of a page in the transaction of its result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Final

from indexmill.contracts.crawl import CrawlKind, confined, host_of
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import document_id
from indexmill.contracts.messages import ScrapeResult, StageResult, Target
from indexmill.orchestrator.admission.admit import budget_of, with_starts
from indexmill.orchestrator.stages.scraping import first_message
from indexmill.orchestrator.store.crawls import Crawl, CrawlPage, PageLinks
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.rows import SHARED, JobSpec, JobState, NewJob

_DIGEST_BYTES: Final = 16
_SITEMAP_LEVELS: Final = 2
"""Levels of sitemaps below the first one."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page of a crawl that was read, whether or not it is indexed."""

    state: JobState
    """Of its job, with the crawl that it belongs to."""
    links: Sequence[str] | None
    """Canonical URLs, those of a sitemap too; None for a page that is unchanged: they are kept."""
    final_url: str
    nofollow: bool = False
    content_sha256: str = ""
    sitemaps: frozenset[str] = frozenset()
    """Those of the links that are sitemaps."""


def read_page(state: JobState, result: StageResult) -> ReadPage | None:
    """Return the page of a crawl that an applied result is of; None for any other result."""
    if state.crawl_id is None or not isinstance(result, ScrapeResult):
        return None
    url, document, failure = state.target.url, result.document, result.failure
    if result.sitemap is not None:
        found = result.sitemap
        links = [*found.sitemaps, *found.urls]
        return ReadPage(state, links, found.final_url, sitemaps=frozenset(found.sitemaps))
    if document is None:
        return ReadPage(state, failure.links, url) if failure is not None and failure.links else None
    if document.unchanged is None and document.links is None:
        return None
    return ReadPage(state, document.links, document.final_url, document.nofollow, document.content_sha256)


@lru_cache(maxsize=4096)
def page_digest(url: str) -> bytes:
    """Return what a page is known by in its crawl."""
    return hashlib.sha256(url.encode()).digest()[:_DIGEST_BYTES]


def follow(tx: JobsTx, pages: Sequence[ReadPage], make_id: Callable[[], str]) -> set[str]:
    """Insert the jobs of the pages that `pages` lead to and return the callers who have new ones.

    Call it after all rows of jobs and documents are locked: it locks crawls until the commit. A page that is
    found again with fewer links from the first one is followed again, so that neither the order of results
    nor a crash decides which pages a crawl has.
    """
    if not pages:
        return set()
    crawls = tx.lock_crawls(sorted({page.state.crawl_id for page in pages if page.state.crawl_id}))
    reported = {
        page.state.target.document_id: PageLinks(
            page.state.target.document_id, page.content_sha256, page.links
        )
        for page in pages
        if page.links is not None and page.state.kind != "sitemap"
    }
    # Those are locked in the order of ids; marking links as used waits for no lock.
    if reported:
        tx.keep_links([reported[each] for each in sorted(reported)])
    unchanged = [page.state.target.document_id for page in pages if page.links is None]
    kept = tx.links_of(unchanged) if unchanged else {}
    grown = set()
    for crawl in crawls.values():
        own = [page for page in pages if page.state.crawl_id == crawl.crawl_id]
        if not crawl.canceled and _Growth(tx, crawl, own[0].state, make_id).by(own, kept):
            grown.add(own[0].state.target.caller_id)
    return grown


@dataclass(slots=True)
class _Growth:
    """New pages of one crawl."""

    tx: JobsTx
    crawl: Crawl
    state: JobState
    """Of one of its jobs: they have caller and corpus in common."""
    make_id: Callable[[], str]
    known: dict[bytes, int] = field(default_factory=dict)
    """Depths."""
    sitemaps: frozenset[str] = frozenset()
    hosts: set[str] = field(default_factory=set)
    """Those whose pages belong to it, with these results."""
    found: dict[str, int] = field(default_factory=dict)
    """Depths of URLs that have no job yet, in the order in which they were found."""

    def by(self, pages: Sequence[ReadPage], kept: Mapping[str, list[str]]) -> bool:
        """Add what the pages lead to; return whether there are new jobs."""
        hosts = set(self.crawl.hosts)
        if self.crawl.pages == 1:
            # The first job's own result: where it redirects to belongs to the crawl.
            hosts |= {host_of(page.final_url) for page in pages if page.state.kind == self.crawl.kind}
        self.hosts = hosts
        self.sitemaps = frozenset(each for page in pages for each in page.sitemaps)
        leads = []
        for page in pages:
            links = page.links if page.links is not None else kept.get(page.state.target.document_id, [])
            if not page.nofollow and (self.crawl.kind == "crawl" or page.state.kind == "sitemap"):
                leads.append((page_digest(page.state.target.url), links))
        admitted = self._admitted((link for _, links in leads for link in links), hosts)
        self.known = self.tx.depths(self.crawl.crawl_id, {*(page for page, _ in leads), *admitted.values()})
        own = [(self.known.get(page, 0), _only(links, admitted)) for page, links in leads]
        self._lead(own, admitted, hosts)
        new = self._insert()
        if new or hosts != set(self.crawl.hosts):
            self.tx.add_pages(self.crawl.crawl_id, new, hosts)
        return bool(new)

    def _lead(
        self,
        leads: Sequence[tuple[int, Sequence[str]]],
        admitted: dict[str, bytes],
        hosts: set[str],
    ) -> None:
        """Note what the leads find, and what that finds again; depths only get less, so it ends."""
        while leads:
            lessened: dict[bytes, int] = {}
            for depth, links in leads:
                for link in links if depth < self.crawl.plan.rules.depth or self._is_sitemap else ():
                    self._find(link, admitted[link], depth + 1, lessened)
            again = self.tx.lessen_depths(self.crawl.crawl_id, lessened) if lessened else {}
            kept = self.tx.links_of(list(again)) if again else {}
            more = self._admitted((link for links in kept.values() for link in links), hosts)
            unknown = {page for link, page in more.items() if link not in admitted}
            self.known |= self.tx.depths(self.crawl.crawl_id, unknown) if unknown else {}
            admitted |= more
            leads = [(depth, _only(kept.get(document, ()), admitted)) for document, depth in again.items()]

    def _find(self, url: str, page: bytes, depth: int, lessened: dict[bytes, int]) -> None:
        if url in self.sitemaps and depth > _SITEMAP_LEVELS:
            return
        if (known := self.known.get(page)) is None:
            self.found[url] = min(depth, self.found.get(url, depth))
        elif depth < known and not self._is_sitemap:
            self.known[page] = lessened[page] = depth

    @property
    def _is_sitemap(self) -> bool:
        return self.crawl.kind == "sitemap"

    def _admitted(self, links: Iterable[str], hosts: set[str]) -> dict[str, bytes]:
        """Return the digests of those of the links that belong to the crawl."""
        rules = self.crawl.plan.rules
        return {
            link: page_digest(link)
            for link in dict.fromkeys(links)
            if (host_of(link) in hosts if link in self.sitemaps else rules.admit(link, hosts))
        }

    def _insert(self) -> list[CrawlPage]:
        """Insert jobs for the URLs that were found, as many as the crawl may still have."""
        room = self.crawl.plan.rules.max_pages - self.crawl.pages
        urls = sorted(self.found, key=lambda url: self.found[url])[: max(0, room)]
        if not urls:
            return []
        ids = sorted(self.make_id() for _ in urls)
        jobs = [self._job(job_id, url) for job_id, url in zip(ids, urls, strict=True)]
        jobs, inserted = with_starts(self.tx, jobs), set[str]()
        for kind in ("sitemap", "page"):
            if alike := [job for job in jobs if job.kind == kind]:
                inserted |= self._inserted(alike)
        return [
            CrawlPage(page_digest(job.target.url), job.job_id, self.found[job.target.url])
            for job in jobs
            if job.job_id in inserted
        ]

    def _inserted(self, jobs: Sequence[NewJob]) -> set[str]:
        expected: dict[str, datetime | None] = {job.job_id: None for job in jobs}
        inserted = self.tx.insert_jobs(jobs, expected, {})
        # Another job is in flight for the document: this crawl has one of its own all the same.
        beside = [replace(job, forced=True) for job in jobs if job.job_id not in inserted]
        return inserted | self.tx.insert_jobs(beside, expected, {}) if beside else inserted

    def _job(self, job_id: str, url: str) -> NewJob:
        plan, of, message_id = self.crawl.plan, self.state.target, self.make_id()
        target = Target(
            caller_id=of.caller_id,
            corpus_name=of.corpus_name,
            corpus_key=of.corpus_key,
            document_id=document_id(of.corpus_key, url),
            url=url,
        )
        is_sitemap, linked = url in self.sitemaps, self.crawl.kind == "crawl"
        first = first_message(
            plan,
            target,
            job_id,
            message_id,
            links=True if linked else None,
            sitemap=plan.rules if is_sitemap else None,
            hosts=confined(plan.rules, self.hosts),
        )
        kind = "sitemap" if is_sitemap else "page"
        return NewJob(job_id, target, url, self.crawl.crawl_id, first, kind=kind, linked=linked, **vars(plan))


def _only(links: Iterable[str], admitted: Collection[str]) -> list[str]:
    return [link for link in links if link in admitted]


def check_room(tx: JobsTx, first: NewJob) -> None:
    """Refuse a crawl whose pages, with those that the caller's other crawls may add, are too many to wait.

    Its jobs are added later, by results, which cannot be refused. Raises CallerError(quota_exceeded).
    """
    most, asked = tx.limits.max_pending, first.rules.max_pages
    to_come = tx.pages_to_come(first.target.caller_id)
    if to_come + asked > most:
        raise CallerError(
            ErrorCode.QUOTA_EXCEEDED,
            f"Your crawls may still add {to_come} jobs, this one {asked}; at most {most} may be pending.",
            retry_after=60,
            hint="Send a lesser max_pages, or wait until a crawl has finished.",
        )


def start_crawl(tx: JobsTx, first: NewJob) -> None:
    """Insert the crawl of its first job, which is inserted."""
    url = first.target.url
    plan = JobSpec(**{name: getattr(first, name) for name in SHARED})
    plan = replace(plan, budget=budget_of(first.budget, tx.limits.of(first.tier)))
    kind: CrawlKind = "sitemap" if first.kind == "sitemap" else "crawl"
    crawl = Crawl(first.batch_id or "", first.target.caller_id, kind, plan, (host_of(url),))
    tx.add_crawl(crawl, CrawlPage(page_digest(url), first.job_id, 0))
