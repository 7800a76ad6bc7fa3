"""Table of the errors of a page: code, and whether they are transient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError, TransientError, http_code

DAMAGED: Final = "damaged"
"""A body that does not decode as it was announced: ends as parse_error, but is worth another try."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Report of one cause. The message names no address and no port: callers must not learn them."""

    transient: bool
    message: str
    code: str | None = None
    """Code to report when it differs from the cause."""


_FAILURES: Final[dict[str, Failure]] = {
    ErrorCode.CONNECTION_REFUSED: Failure(True, "The site refused the connection"),
    ErrorCode.CONNECTION_ERROR: Failure(True, "The connection to the site broke"),
    ErrorCode.CONNECTION_TIMEOUT: Failure(True, "The site did not accept the connection in time"),
    ErrorCode.READ_TIMEOUT: Failure(True, "The site stopped sending"),
    ErrorCode.DEADLINE_EXCEEDED: Failure(True, "The page did not arrive in time"),
    ErrorCode.TLS_ERROR: Failure(True, "No secure connection to the site could be made"),
    ErrorCode.DNS_ERROR: Failure(True, "The name of the site could not be resolved"),
    ErrorCode.ROBOTS_UNAVAILABLE: Failure(True, "The site's robots.txt cannot be read at the moment"),
    DAMAGED: Failure(True, "The page arrived damaged", ErrorCode.PARSE_ERROR),
    ErrorCode.ROBOTS_DISALLOWED: Failure(
        False, "The site's robots.txt does not allow this page to be fetched"
    ),
    ErrorCode.ROBOTS_NOINDEX: Failure(False, "The page asks not to be indexed"),
    ErrorCode.URL_HOST_NOT_ALLOWED: Failure(False, "The host of the URL is not on the public internet"),
    ErrorCode.TOO_MANY_REDIRECTS: Failure(False, "The page redirects too often"),
    ErrorCode.OTHER_HOST: Failure(
        False, "The page redirects to another host, and its crawl has pages of its own host only"
    ),
    ErrorCode.CONTENT_TOO_LARGE: Failure(False, "The page is larger than the limit"),
    ErrorCode.CONTENT_BOMB: Failure(False, "The page unpacks to far more than it sends"),
    ErrorCode.UNSUPPORTED_CONTENT_TYPE: Failure(
        False, "Only web pages, text, PDF, DOCX, PPTX, XLSX, EPUB, JSON, CSV and XML can be read"
    ),
    ErrorCode.UNSUPPORTED_ENCODING: Failure(
        False, "The page uses a content encoding other than gzip", ErrorCode.UNSUPPORTED_CONTENT_TYPE
    ),
    ErrorCode.EMPTY_CONTENT: Failure(False, "The page has no readable text"),
    ErrorCode.LOGIN_REQUIRED: Failure(False, "The page is a login: what is behind it cannot be read"),
    ErrorCode.SOFT_404: Failure(False, "The site has no such page, although it answers with status 200"),
    ErrorCode.NEEDS_JAVASCRIPT: Failure(
        False, "The page has no text before a browser runs its scripts, and they are not run here"
    ),
    ErrorCode.RENDERER_UNAVAILABLE: Failure(
        True, "The browser that runs the scripts of pages is not available at the moment"
    ),
    ErrorCode.RENDER_LIMIT_EXCEEDED: Failure(False, "The page's scripts need too much"),
    ErrorCode.PARSE_ERROR: Failure(False, "The page cannot be read"),
}
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
_STATUS_MESSAGE: Final = {
    206: "Domain returned 206 — a part of the page that was not asked for",
    401: "Domain returned 401 — the page needs a login",
    403: "Domain returned 403 — likely blocked or robots.txt restricted",
    404: "Domain returned 404 — the page does not exist",
    410: "Domain returned 410 — the page is gone",
    429: "Domain returned 429 — too many requests",
}


class NameNotFound(TransientError):
    """No such name: the resolver said so, twice. For a page that was never published it is the end."""

    def __init__(self) -> None:
        """Its code is that of every name that cannot be resolved."""
        super().__init__(ErrorCode.DNS_ERROR, "The name of the site does not exist")


def failure(cause: str, message: str | None = None) -> IndexmillError:
    """Return the error for `cause`, a code of the table; `message` says it more precisely."""
    row = _FAILURES[cause]
    kind = TransientError if row.transient else PermanentError
    return kind(row.code or cause, message or row.message)


def status_failure(status: int, retry_after: int | None = None) -> IndexmillError:
    """Return the error for a site that answered `status`, which is not a success."""
    kind = TransientError if is_transient_status(status) else PermanentError
    message = _STATUS_MESSAGE.get(status, f"Domain returned {status}")
    return kind(http_code(status), message, retry_after=retry_after)


def is_transient_status(status: int) -> bool:
    """Return whether the same request may get another answer later."""
    return status in _TRANSIENT_STATUS or status >= 500
