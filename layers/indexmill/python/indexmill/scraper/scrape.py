"""Scrape of one URL, or of content that was kept, into a document; for the worker and the HTTP route."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import urljoin

from indexmill.contracts.content import (
    INLINE_LIMIT_BYTES,
    BlobRef,
    DetailedDocument,
    Document,
    PageMetadata,
    is_given,
)
from indexmill.contracts.crawl import host_of
from indexmill.contracts.errors import (
    DomainBusy,
    ErrorCode,
    IndexmillError,
    PermanentError,
    TransientError,
    failure,
)
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.security.urls import AllowedHosts, canonical_url
from indexmill.platform.time import Clock
from indexmill.scraper.extract.content import (
    EXTRACTORS,
    MAIN_PART,
    Extracted,
    Kind,
    RawContent,
    Unusable,
    Wanted,
    detect,
    extract,
    is_risky,
)
from indexmill.scraper.links import canonical_links, enter, other_name
from indexmill.scraper.ports import (
    MAX_REDIRECTS,
    NOT_MODIFIED,
    Fetched,
    Fetcher,
    Isolation,
    Renderer,
    Validators,
)
from indexmill.scraper.rate_limit import PageFetch, RateLimiter
from indexmill.scraper.revisit import NOT_STORED, StoredPage, is_recent, is_same, kept, renewed, unchanged
from indexmill.scraper.robots import Robots

INLINE_TEXT_BYTES: Final = INLINE_LIMIT_BYTES - 4_000
"""Text with more bytes than this as JSON goes by reference: the rest of a message fits beside it."""
_SLOW_BYTES: Final = 200_000
_HEAD_BYTES: Final = 65_536
"""Beginning of a page, in which a refresh is looked for."""


@dataclass(frozen=True, slots=True)
class ScrapeParts:
    """Ports and settings of a scrape."""

    fetcher: Fetcher
    robots: Robots
    rates: RateLimiter
    blobs: BlobStore
    isolation: Isolation
    clock: Clock
    allowed_hosts: AllowedHosts = frozenset()
    inline_text_bytes: int = INLINE_TEXT_BYTES
    known_for: timedelta = timedelta()
    """Age from which on known raw content is stored again; by default it always is."""
    max_content_bytes: int = 10 * 1024 * 1024
    """Largest page, and largest text that was given; only a PDF may be larger."""
    wanted: Wanted = MAIN_PART
    renderer: Renderer | None = None
    """Runs the scripts of pages without text; None: such pages are refused."""
    rendering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a page is rendered: a browser needs most of a machine."""
    risky: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while risky content is read and its long text stored, and while content over that bound is in
    memory: the function's memory has room for one."""


class NotTried(TransientError):
    """Other content was read until the deadline, or until too little time was left."""

    def __init__(self) -> None:
        """Its code is that of every page that was not finished in time."""
        super().__init__(ErrorCode.DEADLINE_EXCEEDED, "Other pages were read first")


async def execute_scrape(
    url: str,
    job_id: str | None,
    *,
    parts: ScrapeParts,
    fetch: PageFetch,
    before: StoredPage = NOT_STORED,
) -> Document:
    """Return the document behind `url`; its raw bytes are stored, and so is text too long for a message.

    It ends by the deadline of the `fetch`; `job_id` is the job it is done for, and changes nothing. A
    document without a URL always has content to read instead of its site; of another one, content that is
    lost is fetched. Bytes that were stored `before` are not stored again before they are old. A document
    that is unchanged since then has no text and no links; another one has them where `parts` ask for them.
    Raises CallerError (the URL), PermanentError (Unusable with the links) and TransientError.
    """
    stored = before.instead
    asked = (
        url if stored is not None and is_given(url) else canonical_url(url, allowed_hosts=parts.allowed_hosts)
    )
    if stored is None:
        if before.same is not None and before.fresh(parts.clock.now(), parts.known_for):
            return unchanged(asked, before.same, "max_age")
        page = await _page(asked, before, parts, fetch)
        found = await _same(asked, page, before, parts)
        return found or await _document_or_rendered(asked, page, before, parts, fetch)
    large = stored.ref.size > parts.max_content_bytes
    async with _alone(parts.risky, parts, fetch.deadline) if large else nullcontext():
        try:
            page = await asyncio.to_thread(kept, stored, parts.blobs)
        except PermanentError:
            if is_given(asked):
                raise
        else:
            found = await _same(asked, page, before, parts)
            return found or await _document(asked, page, before, parts, fetch.deadline, alone=large)
    # It is lost or corrupt.
    return await execute_scrape(url, job_id, parts=parts, fetch=fetch)


async def _page(url: str, before: StoredPage, parts: ScrapeParts, fetch: PageFetch) -> Fetched:
    """Return fresh content or the site's answer, which is NOT_MODIFIED of the same content only."""
    fresh, same = before.fresh(parts.clock.now(), parts.known_for), before.same
    if fresh is not None:
        # Lost content is fetched again.
        with suppress(PermanentError):
            return await asyncio.to_thread(kept, fresh, parts.blobs)
    # Without its body, content that is old could not be stored again.
    asks = same is not None and is_recent(same, parts.clock.now(), parts.known_for)
    known = Validators(same.etag, same.last_modified, same.final_url) if same and asks else None
    page = await fetched(url, known, parts, fetch)
    parts.robots.check_page(page.robots_tags, "X-Robots-Tag")
    return replace(page, fetched_at=parts.clock.now())


async def fetched(url: str, known: Validators | None, parts: ScrapeParts, fetch: PageFetch) -> Fetched:
    """Return the answer of the site, or of where it redirects; each request within the rate of its site."""

    async def allowed(hop: str) -> None:
        if fetch.hosts is not None and host_of(hop) not in fetch.hosts:
            # Before anything of that host is asked, its robots.txt too.
            raise failure(ErrorCode.OTHER_HOST)
        await fetch.acquire(hop, await parts.robots.check(hop, fetch))

    redirects = MAX_REDIRECTS
    if fetch.resume is not None:
        left, _, reached = fetch.resume.partition(" ")
        url, redirects = canonical_url(reached, allowed_hosts=parts.allowed_hosts), int(left)
    try:
        await allowed(url)
        while True:
            page = await parts.fetcher.fetch(
                url,
                deadline=fetch.deadline,
                before_hop=allowed,
                known=known,
                redirects=redirects,
                on_send=fetch.sends,
            )
            target = _refreshed(page, parts)
            if target is None:
                break
            if page.redirects == 0:
                raise failure(ErrorCode.TOO_MANY_REDIRECTS)
            url, redirects = target, page.redirects - 1
            await enter(allowed, url, redirects)
    except DomainBusy as busy:
        busy.resume = busy.resume or fetch.resume
        fetch.end(None)
        raise
    except IndexmillError as error:
        fetch.end(error)
        raise
    fetch.end(None)
    return page


def _refreshed(page: Fetched, parts: ScrapeParts) -> str | None:
    """Return the URL of the other page that `page` refreshes to at once. Raises PermanentError."""
    if page.refresh is None and b"refresh" not in page.body[:_HEAD_BYTES].lower():
        return None
    # 50 ms of import that a process without HTML spares.
    from indexmill.scraper.refresh import refresh_target

    return refresh_target(page, page.body[:_HEAD_BYTES], parts.allowed_hosts)


async def _same(asked: str, page: Fetched, before: StoredPage, parts: ScrapeParts) -> Document | None:
    """Return the document without text if `page` has the same content as before; None if not."""
    same = before.same
    if same is None:
        return None
    nofollow = parts.robots.nofollow(page.robots_tags)
    if page.status == NOT_MODIFIED:
        return unchanged(asked, renewed(same, page), "not_modified", nofollow=nofollow)
    kind = detect(page.body, page.content_type, page.final_url)
    digest = hashlib.sha256(page.body).hexdigest()
    if not is_same(same, digest, kind, page.charset):
        return None
    raw_ref, raw_stored_at = await _store_raw(page.body, digest, kind, before, parts)
    again = renewed(same, page).model_copy(update={"ref": raw_ref, "stored_at": raw_stored_at})
    return unchanged(asked, again, "same_content", nofollow=nofollow)


async def _document_or_rendered(
    asked: str, page: Fetched, before: StoredPage, parts: ScrapeParts, fetch: PageFetch
) -> Document:
    """Return the document that `page` is; when it has no text before its scripts ran, after that."""
    try:
        return await _document(asked, page, before, parts, fetch.deadline)
    except PermanentError as error:
        if error.code != ErrorCode.NEEDS_JAVASCRIPT or parts.renderer is None:
            raise
    async with _alone(parts.rendering, parts, fetch.deadline):
        html = await fetch.unless_canceled(partial(parts.renderer.render, page, deadline=fetch.deadline))
    # The validators are those of the page without its text, so that the site is asked for all of it again.
    rendered = replace(page, body=html, content_type=Kind.HTML, charset="utf-8", validators=Validators())
    found = await _same(asked, rendered, before, parts)
    try:
        document = found or await _document(asked, rendered, before, parts, fetch.deadline)
    except PermanentError as error:
        if error.code == ErrorCode.NEEDS_JAVASCRIPT:
            raise failure(ErrorCode.EMPTY_CONTENT, "The page has no text after its scripts ran") from error
        raise
    return document.model_copy(update={"rendered": True})


async def _document(
    asked: str,
    page: Fetched,
    before: StoredPage,
    parts: ScrapeParts,
    deadline: float,
    *,
    alone: bool = False,
) -> Document:
    """Return the document that `page` is; `alone` when `parts.risky` is held."""
    kind = detect(page.body, page.content_type, page.final_url)
    if kind is not Kind.PDF and len(page.body) > parts.max_content_bytes:
        raise failure(ErrorCode.CONTENT_TOO_LARGE, "Only a PDF may be that large")
    digest = hashlib.sha256(page.body).hexdigest()
    content = RawContent(page.body, kind, page.charset, replace(parts.wanted, noscript=not parts.renderer))
    # Given content is there to be indexed: rules in it are for crawlers.
    crawled = not is_given(asked)
    try:
        found, text_ref = await _read(content, parts, deadline, alone=alone, crawled=crawled)
    except Unusable as error:
        followed = () if parts.robots.nofollow(page.robots_tags) else error.links
        error.links = tuple(canonical_links(followed, page.final_url, parts.allowed_hosts))
        raise
    raw_ref, raw_stored_at = await _store_raw(page.body, digest, kind, before, parts)
    nofollow = parts.robots.nofollow((*page.robots_tags, *found.robots))
    links = () if nofollow else found.links
    named = found.canonical if crawled and found.canonical != asked else None
    document = Document(
        url=asked,
        final_url=page.final_url,
        title=found.title,
        content_type=kind,
        charset=page.charset,
        language=found.language,
        nofollow=nofollow,
        links=canonical_links(links, page.final_url, parts.allowed_hosts) if parts.wanted.links else None,
        notes=list(found.notes) or None,
        text=found.markdown if text_ref is None else None,
        text_ref=text_ref,
        raw_ref=raw_ref,
        raw_stored_at=raw_stored_at,
        content_sha256=digest,
        extractor=EXTRACTORS[kind],
        etag=page.validators.etag,
        last_modified=page.validators.last_modified,
        fetched_at=page.fetched_at,
        published_at=found.published,
        page_starts=list(found.page_starts) or None,
        canonical_url=other_name(named, asked, page.final_url, parts.allowed_hosts) if named else None,
    )
    return _detailed(document, found, parts) if parts.wanted.details else document


def _detailed(document: Document, found: Extracted, parts: ScrapeParts) -> DetailedDocument:
    """Return the document with the HTML and the metadata that were found."""
    says = {**found.metadata, "title": found.title, "language": found.language}
    named = says.get("canonical_url")
    if named is not None:
        try:
            says["canonical_url"] = canonical_url(
                urljoin(document.final_url, named), allowed_hosts=parts.allowed_hosts
            )
        except (IndexmillError, ValueError):  # urljoin raises the latter
            says["canonical_url"] = None
    return DetailedDocument(**dict(document), html=found.html, metadata=PageMetadata(**says))


async def _read(
    content: RawContent, parts: ScrapeParts, deadline: float, *, alone: bool, crawled: bool
) -> tuple[Extracted, BlobRef | None]:
    """Return what is readable, and where its text is when it is too long for a message: it is dropped then.

    It is read here when that is quick, in a thread when it is slow; in a process, one at a time, when risky.
    """
    if not is_risky(content):
        slow = len(content.body) > _SLOW_BYTES
        found = await asyncio.to_thread(extract, content) if slow else extract(content)
        return await _accepted(found, parts, crawled=crawled)
    async with nullcontext() if alone else _alone(parts.risky, parts, deadline):
        left = deadline - parts.clock.monotonic()
        found = await asyncio.to_thread(parts.isolation.extract, content, timeout_s=left)
        return await _accepted(found, parts, crawled=crawled)


@asynccontextmanager
async def _alone(lock: asyncio.Lock, parts: ScrapeParts, deadline: float) -> AsyncIterator[None]:
    """Hold `lock`. Raises NotTried when too little time was left after the wait for it."""
    waits = lock.locked()
    try:
        async with asyncio.timeout(deadline - parts.clock.monotonic()):
            await lock.acquire()
    except TimeoutError:
        raise NotTried from None
    try:
        yield
    except TransientError as error:
        # What it waited for others was not its own time.
        if waits and error.code == ErrorCode.DEADLINE_EXCEEDED:
            raise NotTried from error
        raise
    finally:
        lock.release()


async def _store_raw(
    body: bytes, digest: str, kind: str, before: StoredPage, parts: ScrapeParts
) -> tuple[BlobRef, datetime]:
    """Return where the raw content is and when it was written; write it unless that is known and recent."""
    now, known = parts.clock.now(), before.instead or before.known
    if (
        known is not None
        and known.stored_at is not None
        and known.ref.sha256 == digest
        and is_recent(known, now, parts.known_for)
    ):
        return known.ref, known.stored_at
    return await asyncio.to_thread(parts.blobs.put, body, kind="raw", content_type=kind), now


async def _accepted(
    found: Extracted, parts: ScrapeParts, *, crawled: bool
) -> tuple[Extracted, BlobRef | None]:
    """Refuse a page that was `crawled` and asks not to be indexed; store text that is too long for a message.

    In a thread, so that other pages continue to load.
    """
    if crawled:
        try:
            parts.robots.check_page(found.robots, "robots meta element")
        except PermanentError as error:
            followed = () if parts.robots.nofollow(found.robots) else found.links
            raise Unusable(error.code, error.message, followed) from error
    if not found.encoded and not is_long(found.markdown, parts.inline_text_bytes):
        return found, None
    body, content_type = found.encoded or found.markdown.encode(), "text/markdown; charset=utf-8"
    ref = await asyncio.to_thread(parts.blobs.put, body, kind="text", content_type=content_type)
    return replace(found, markdown="", encoded=b""), ref


def is_long(text: str, limit: int) -> bool:
    """Return whether `text` as JSON has more than `limit` bytes; mostly decided by its length alone."""
    if len(text) > limit:
        return True
    if len(text) * 6 <= limit:
        return False
    return len(json.dumps(text, ensure_ascii=False).encode()) > limit
