"""Ports of the Scraper: fetcher, isolated parser, renderer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.scraper.extract.content import Extracted, RawContent

MAX_REDIRECTS: Final = 5


class NameNotFound(TransientError):
    """No such name: the resolver said so, twice. For a page that was never published it is the end."""

    def __init__(self) -> None:
        """Its code is that of every name that cannot be resolved."""
        super().__init__(ErrorCode.DNS_ERROR, "The name of the site does not exist")


@dataclass(frozen=True, slots=True)
class Validators:
    """The headers by which a site tells whether a page changed."""

    etag: str | None = None
    last_modified: str | None = None
    url: str = ""
    """Which URL sent them: they mean nothing to any other, as where a redirect led before."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A successful answer."""

    final_url: str
    """Canonical; where redirects ended."""
    status: int
    content_type: str
    """Media type in lower case without parameters; "" when the site sent none."""
    charset: str | None
    body: bytes
    """Without content encoding."""
    retry_after: int | None = None
    """Seconds, when the site asks for a pause."""
    robots_tags: tuple[str, ...] = ()
    """Values of the X-Robots-Tag headers."""
    validators: Validators = Validators()
    """With which the site can be asked for changes of this answer."""
    fetched_at: datetime | None = None
    """When the site sent it; None where that was not noted."""
    refresh: str | None = None
    """Value of the Refresh header."""
    redirects: int = MAX_REDIRECTS
    """How many more may be followed."""


NOT_MODIFIED: Final = 304
"""Status of an answer without a body: the page is as it was when its validators were sent."""


BeforeHop = Callable[[str], Awaitable[object]]
OnSend = Callable[[], Awaitable[object]]


class Fetcher(Protocol):
    """Gets pages from the public internet and from nowhere else."""

    async def fetch(  # noqa: PLR0913 - each is of this request alone
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
        """Return what `url`, which is canonical, answers with a 2xx status after at most so many `redirects`.

        With `known` validators the request to their URL is conditional, and NOT_MODIFIED is a status too.
        `deadline` is a monotonic second. A body over the fetcher's limit is an error, one over
        `cut_at` bytes is cut there. `before_hop` is awaited with the canonical URL of each redirect, and of
        a request that is sent again on a new connection, and its errors end the fetch. Its DomainBusy leaves
        with `resume`: the redirects that are left and the URL, which may be fetched with them later.
        `on_send` is awaited before each request is sent, on a connection that is open, and its errors end the
        fetch. Raises TransientError and PermanentError, codes as in ErrorCode.
        """
        ...

    async def close(self) -> None:
        """Close kept connections, in the event loop that opened them; the next call opens new ones."""
        ...


class Isolation(Protocol):
    """Parses content that could take the process down, out of its reach."""

    def extract(self, content: RawContent, *, timeout_s: float) -> Extracted:
        """Return the readable text. Blocks; called for one content at a time.

        Raises PermanentError, among them parse_error when the content needs more time or memory than it gets,
        and TransientError(deadline_exceeded) when `timeout_s` was the shorter limit.
        """
        ...


class Renderer(Protocol):
    """Runs the scripts of pages, which reach the public internet and nothing else."""

    async def render(self, page: Fetched, *, deadline: float) -> bytes:
        """Return the HTML of `page`, in UTF-8, after its scripts ran; `deadline` is a monotonic second.

        `page` is not requested again, and its scripts do not lead to another page.
        Raises PermanentError (render_limit_exceeded, content_too_large) and TransientError
        (renderer_unavailable, deadline_exceeded).
        """
        ...
