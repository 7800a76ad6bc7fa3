"""In-memory twins of the Scraper's ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from indexmill.contracts.errors import DomainBusy, ErrorCode, failure
from indexmill.scraper.adapters.answer import status_failure
from indexmill.scraper.extract.content import Extracted, RawContent, extract
from indexmill.scraper.ports import (
    MAX_REDIRECTS,
    NOT_MODIFIED,
    BeforeHop,
    Fetched,
    OnSend,
    Validators,
)
from indexmill.scraper.token_bucket import KnownRobots, RobotsCache


@dataclass(frozen=True)
class Redirect:
    """An answer that sends on to another canonical URL."""

    to: str


class InMemoryFetcher:
    """Serves pages from a mapping of canonical URL to answer; a URL that is not there answers 404."""

    def __init__(
        self, pages: Mapping[str, Fetched | Redirect | bytes | str | Exception] | None = None
    ) -> None:
        """Text and bytes are HTML pages; an exception is raised."""
        self.pages: dict[str, Fetched | Redirect | bytes | str | Exception] = dict(pages or {})
        self.requested: list[str] = []
        self.connecting: Callable[[], object] = lambda: None
        """Called before a request is sent."""

    async def fetch(
        self,
        url: str,
        *,
        deadline: float,
        cut_at: int | None = None,
        before_hop: BeforeHop | None = None,
        known: Validators | None = None,
        redirects: int = MAX_REDIRECTS,
        on_send: OnSend | None = None,
    ) -> Fetched:
        """Return the page, or raise the error configured for it."""
        self.connecting()
        if on_send is not None:
            await on_send()
        self.requested.append(url)
        page = self.pages.get(url)
        if isinstance(page, Redirect):
            if redirects == 0:
                raise failure(ErrorCode.TOO_MANY_REDIRECTS)
            if before_hop is not None:
                try:
                    await before_hop(page.to)
                except DomainBusy as busy:
                    busy.resume = f"{redirects - 1} {page.to}"
                    raise
            return await self.fetch(
                page.to,
                deadline=deadline,
                cut_at=cut_at,
                before_hop=before_hop,
                known=known,
                redirects=redirects - 1,
                on_send=on_send,
            )
        if page is None:
            raise status_failure(404)
        if isinstance(page, Exception):
            raise page
        if not isinstance(page, Fetched):
            body = page.encode() if isinstance(page, str) else page
            page = Fetched(url, 200, "text/html", "utf-8", body)
        if known is not None and known.etag is not None and known.etag == page.validators.etag:
            return Fetched(page.final_url, NOT_MODIFIED, "", None, b"", validators=page.validators)
        return replace(page, body=page.body[:cut_at], redirects=redirects)

    async def close(self) -> None:
        """Close nothing."""


class InMemoryRobotsCache(RobotsCache):
    """A dictionary that never expires by itself: the reader compares the time."""

    def __init__(self) -> None:
        """Knows nothing yet."""
        self.known: dict[str, KnownRobots] = {}

    def get(self, origin: str) -> KnownRobots | None:
        """Return what was put."""
        return self.known.get(origin)

    def put(self, origin: str, known: KnownRobots) -> None:
        """Remember."""
        self.known[origin] = known


class InlineIsolation:
    """Isolates nothing: reads risky content in this process."""

    def extract(self, content: RawContent, *, timeout_s: float) -> Extracted:
        """Return the readable text."""
        return extract(content)


class InMemoryRenderer:
    """Makes each page what `makes` returns for it, or raises that."""

    def __init__(self, makes: Callable[[Fetched], str | Exception]) -> None:
        """`rendered` are the pages that it was given."""
        self._makes = makes
        self.rendered: list[Fetched] = []

    async def render(self, page: Fetched, *, deadline: float) -> bytes:
        """Return the page as its scripts would have made it."""
        self.rendered.append(page)
        await asyncio.sleep(0)
        made = self._makes(page)
        if isinstance(made, Exception):
            raise made
        return made.encode()
