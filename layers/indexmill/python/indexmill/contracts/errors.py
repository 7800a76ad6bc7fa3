"""The error tree and the bounded set of codes that callers, jobs and metrics may see.

    IndexmillError            code, message, field?, retry_after?, hint?
    ├── CallerError           the request is wrong: 4xx, never retried by us
    ├── TransientError        may work later: 502/503/504 over HTTP, a retry in a worker
    ├── PermanentError        this document can never work: ends its job with the code
    └── Defect                our own fault: 500, logged with its trace

Every code is a member of `ErrorCode` or `http_<status>` for the status a fetched site answered.
"""

from __future__ import annotations

import math
import re
from enum import Flag, StrEnum
from typing import Final, Self


class Trait(Flag):
    """Consequence of a failure, for its stage and its caller."""

    NONE = 0
    TRANSIENT = 1
    """A stage that reports it tries again."""
    RETRY_HELPS = 2
    """Its job may succeed when its caller retries it."""
    OUTAGE = 4
    """Says something about the other side rather than about a document: it counts for the breaker."""
    OF_DOCUMENT = 8
    """One document of a batch can cause it: each is tried by itself then."""
    AFTER_ROBOTS = 16
    """The page's robots.txt had allowed it by then."""


_TRANSIENT, _RETRY_HELPS = Trait.TRANSIENT, Trait.RETRY_HELPS
_OUTAGE, _OF_DOCUMENT, _AFTER_ROBOTS = Trait.OUTAGE, Trait.OF_DOCUMENT, Trait.AFTER_ROBOTS
_PASSES = _TRANSIENT | _RETRY_HELPS


class ErrorCode(StrEnum):
    """Every code of an error envelope, a job's error or a metric dimension: one row for each.

    A row has the code, and each of these where it has one: the HTTP status (else that of the error's class),
    the traits, and the message of a stage that fails by it, which names no address and no port.
    """

    status: int | None
    traits: Trait
    message: str

    def __new__(cls, code: str, *row: int | str | Trait) -> Self:
        """Return the member whose value is the code alone."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.status, member.traits, member.message = None, Trait.NONE, ""
        for each in row:
            if isinstance(each, Trait):
                member.traits = each
            elif isinstance(each, str):
                member.message = each
            else:
                member.status = each
        return member

    BAD_REQUEST = "bad_request", 400
    MALFORMED_JSON = "malformed_json", 400
    INVALID_ENCODING = "invalid_encoding", 400
    INVALID_HEADER = "invalid_header", 400
    UNSUPPORTED_ENCODING = "unsupported_encoding", 400, _AFTER_ROBOTS
    INVALID_API_KEY = "invalid_api_key", 401
    BAD_SIGNATURE = "bad_signature", 401
    STALE_TIMESTAMP = "stale_timestamp", 401
    FORBIDDEN = "forbidden", 403
    INSUFFICIENT_SCOPE = "insufficient_scope", 403
    REQUEST_BLOCKED = "request_blocked", 403
    CALLER_BLOCKED = "caller_blocked", 403
    NOT_FOUND = "not_found", 404
    CONTENT_EXPIRED = "content_expired", 410
    IDEMPOTENCY_CONFLICT = "idempotency_conflict", 409
    INVALID_TRANSITION = "invalid_transition", 409
    CONFIRM_MISMATCH = "confirm_mismatch", 409
    REQUEST_TIMEOUT = "request_timeout", 408
    PAYLOAD_TOO_LARGE = "payload_too_large", 413
    RESPONSE_TOO_LARGE = "response_too_large", 413, _AFTER_ROBOTS
    URI_TOO_LONG = "uri_too_long", 414
    HEADERS_TOO_LARGE = "headers_too_large", 431
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type", 415
    VALIDATION_ERROR = "validation_error"
    URL_INVALID = "url_invalid"
    URL_SCHEME_NOT_ALLOWED = "url_scheme_not_allowed"
    URL_HOST_NOT_ALLOWED = "url_host_not_allowed", "The host of the URL is not on the public internet"
    URL_CREDENTIALS_NOT_ALLOWED = "url_credentials_not_allowed"
    CORPUS_NAME_INVALID = "corpus_name_invalid"
    RATE_LIMITED = "rate_limited", 429
    QUEUE_SATURATED = "queue_saturated", 429
    QUOTA_EXCEEDED = "quota_exceeded", 429
    GATEWAY_THROTTLED = "gateway_throttled", 429
    WAF_RATE_LIMITED = "waf_rate_limited", 429
    INTERNAL_ERROR = "internal_error", 500, _RETRY_HELPS
    UPSTREAM_ERROR = "upstream_error", 502
    MAINTENANCE = "maintenance", 503
    AUTH_UNAVAILABLE = "auth_unavailable", 503
    DATABASE_UNAVAILABLE = "database_unavailable", 503, _RETRY_HELPS
    SEARCH_UNAVAILABLE = "search_unavailable", 503, _PASSES | _OUTAGE, "Search is not reachable right now."
    EMBEDDING_UNAVAILABLE = (
        "embedding_unavailable",
        503,
        _PASSES | _OUTAGE,
        "The embedding endpoint cannot be reached.",
    )
    CHUNKING_UNAVAILABLE = "chunking_unavailable", 503, _RETRY_HELPS
    QUEUE_UNAVAILABLE = "queue_unavailable", 503, _RETRY_HELPS
    STORAGE_UNAVAILABLE = "storage_unavailable", 503, _RETRY_HELPS
    SIGNING_UNAVAILABLE = "signing_unavailable", 503
    DEADLINE_EXCEEDED = "deadline_exceeded", 504, _PASSES, "The page did not arrive in time"
    DOMAIN_BUSY = "domain_busy", 503
    DOMAIN_FAILING = "domain_failing", 503
    # What ends a job.
    CONNECTION_REFUSED = "connection_refused", _PASSES, "The site refused the connection"
    CONNECTION_ERROR = "connection_error", _PASSES, "The connection to the site broke"
    CONNECTION_TIMEOUT = "connection_timeout", _PASSES, "The site did not accept the connection in time"
    READ_TIMEOUT = "read_timeout", _PASSES | _AFTER_ROBOTS, "The site stopped sending"
    TLS_ERROR = "tls_error", _PASSES, "No secure connection to the site could be made"
    DNS_ERROR = "dns_error", _PASSES, "The name of the site could not be resolved"
    ROBOTS_DISALLOWED = "robots_disallowed", "The site's robots.txt does not allow this page to be fetched"
    ROBOTS_UNAVAILABLE = "robots_unavailable", _PASSES, "The site's robots.txt cannot be read at the moment"
    ROBOTS_NOINDEX = "robots_noindex", "The page asks not to be indexed"
    TOO_MANY_REDIRECTS = "too_many_redirects", _AFTER_ROBOTS, "The page redirects too often"
    OTHER_HOST = (
        "other_host",
        _AFTER_ROBOTS,
        "The page redirects to another host, and its crawl has pages of its own host only",
    )
    CONTENT_TOO_LARGE = "content_too_large", _AFTER_ROBOTS, "The page is larger than the limit"
    CONTENT_BOMB = "content_bomb", _AFTER_ROBOTS, "The page unpacks to far more than it sends"
    UNSUPPORTED_CONTENT_TYPE = (
        "unsupported_content_type",
        _AFTER_ROBOTS,
        "Only web pages, text, PDF, DOCX, PPTX, XLSX, EPUB, JSON, CSV and XML can be read",
    )
    EMPTY_CONTENT = "empty_content", _AFTER_ROBOTS, "The page has no readable text"
    LOGIN_REQUIRED = "login_required", _AFTER_ROBOTS, "The page is a login: what is behind it cannot be read"
    SOFT_404 = "soft_404", _AFTER_ROBOTS, "The site has no such page, although it answers with status 200"
    NEEDS_JAVASCRIPT = (
        "needs_javascript",
        _AFTER_ROBOTS,
        "The page has no text before a browser runs its scripts, and they are not run here",
    )
    RENDERER_UNAVAILABLE = (
        "renderer_unavailable",
        _TRANSIENT | _AFTER_ROBOTS,
        "The browser that runs the scripts of pages is not available at the moment",
    )
    RENDER_LIMIT_EXCEEDED = "render_limit_exceeded", _AFTER_ROBOTS, "The page's scripts need too much"
    PARSE_ERROR = "parse_error", _AFTER_ROBOTS, "The page cannot be read"
    CONTENT_MISSING = "content_missing", _RETRY_HELPS
    CONTENT_CORRUPT = "content_corrupt", _RETRY_HELPS
    TOO_MANY_CHUNKS = "too_many_chunks"
    TOKEN_LIMIT_EXCEEDED = (
        "token_limit_exceeded",
        _OF_DOCUMENT,
        "A text has more tokens than the model takes.",
    )
    OPENAI_RATE_LIMIT = (
        "openai_rate_limit",
        503,
        _PASSES | _OUTAGE,
        "The embedding endpoint's rate limit is reached.",
    )
    EMBEDDING_REJECTED = "embedding_rejected", _OF_DOCUMENT, "The embedding endpoint refused the request."
    EMBEDDING_INCOMPLETE = "embedding_incomplete", _PASSES | _OF_DOCUMENT, "Vectors are missing."
    EMBEDDING_INVALID = (
        "embedding_invalid",
        _PASSES | _OF_DOCUMENT,
        "The embedding endpoint sent a vector without direction.",
    )
    EMBEDDING_BAD_RESPONSE = (
        "embedding_bad_response",
        _PASSES | _OUTAGE,
        "The embedding endpoint's answer is unreadable.",
    )
    DIMENSION_MISMATCH = "dimension_mismatch", _OF_DOCUMENT, "The model gives vectors of another dimension."
    VECTOR_REJECTED = "vector_rejected", _OF_DOCUMENT, "The index cannot keep this chunk."
    MESSAGE_TOO_LARGE = "message_too_large"
    POISON_MESSAGE = "poison_message", _RETRY_HELPS
    WORKER_CRASHED = "worker_crashed", _RETRY_HELPS
    TIMED_OUT = "timed_out", _RETRY_HELPS
    STUCK_TIMEOUT = "stuck_timeout", _RETRY_HELPS
    CANCELED = "canceled", _RETRY_HELPS
    DEPENDENCY_FAILED = "dependency_failed", _RETRY_HELPS
    BUDGET_EXCEEDED = "budget_exceeded"
    MAX_RETRIES_EXCEEDED = "max_retries_exceeded", _RETRY_HELPS


def codes(trait: Trait) -> frozenset[str]:
    """Return the codes that have `trait`."""
    return frozenset(code for code in ErrorCode if trait in code.traits)


_HTTP_CODE: Final = re.compile(r"http_[1-5][0-9]{2}")
HTTP_STATUS: Final = {code.value: code.status for code in ErrorCode if code.status is not None}
"""HTTP status of a code; a code that is not here answers by its kind (`IndexmillError.http_status`)."""


def http_code(status: int) -> str:
    """Return the code for a site that answered `status`, for example `http_403`."""
    return f"http_{status}"


def is_code(text: str) -> bool:
    """Return whether `text` belongs to the bounded set."""
    return text in ErrorCode.__members__.values() or _HTTP_CODE.fullmatch(text) is not None


class IndexmillError(Exception):
    """Anything that goes wrong with a name: a code from the bounded set and a sentence for people."""

    default_status: int = 500
    retryable: bool = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
        hint: str | None = None,
    ) -> None:
        """`field` names the offending input, `retry_after` is in seconds, `hint` tells the next step."""
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.field = field
        self.retry_after = retry_after
        self.hint = hint

    @property
    def http_status(self) -> int:
        """Status of the HTTP answer that carries this error."""
        return HTTP_STATUS.get(self.code, self.default_status)


class CallerError(IndexmillError):
    """The request is wrong and stays wrong."""

    default_status = 422


class TransientError(IndexmillError):
    """It may succeed later; `retry_after` is the wait in seconds, if the other side sent one."""

    default_status = 502
    retryable = True


class Refused(TransientError):
    """The other side refuses us, whatever we ask: an outage that lasts until a setting is changed."""


class BreakerOpen(TransientError):
    """The breaker is open, or the failure of this call opened it: work waits `wait_s` seconds."""

    def __init__(self, code: str, wait_s: float, message: str = "") -> None:
        """`code` and `message` are those of the error which opened it, as far as it is known."""
        message = message or "Not tried: the last requests failed."
        super().__init__(code, message, retry_after=int(wait_s + 1))
        self.wait_s = wait_s


class DomainBusy(TransientError):
    """The site is not asked now, but in `wait_s` seconds: nothing was tried."""

    def __init__(self, code: str, message: str, site: str, wait_s: float, cause: str = "") -> None:
        """`code` is domain_busy or domain_failing, `cause` the code of the last failure of a failing site."""
        super().__init__(code, message, retry_after=max(1, math.ceil(wait_s)))
        self.site = site
        self.wait_s = wait_s
        self.cause = cause
        self.resume: str | None = None
        """Redirects that are left and the URL of the next try, when redirects were followed before."""

    def copy(self) -> DomainBusy:
        """Return the error of another page that waits for the same."""
        return DomainBusy(self.code, self.message, self.site, self.wait_s, self.cause)


class PermanentError(IndexmillError):
    """This document or request can never work as it is."""

    default_status = 422


class Defect(IndexmillError):
    """Our own fault."""

    def __init__(self, message: str) -> None:
        """`message` is for the log; callers see a neutral sentence."""
        super().__init__(ErrorCode.INTERNAL_ERROR, message)


def failure(code: str, message: str | None = None, *, retry_after: int | None = None) -> IndexmillError:
    """Return the error that a stage reports as `code`, with `message` instead of the row's own."""
    row = ErrorCode(code)
    kind = TransientError if _TRANSIENT in row.traits else PermanentError
    return kind(row, message or row.message, retry_after=retry_after)


def full_corpus() -> CallerError:
    """Return the error for a new document of a corpus that has as many chunks as it may."""
    return CallerError(
        ErrorCode.QUOTA_EXCEEDED,
        "The corpus has as many chunks as a corpus of yours may have.",
        field="body.corpus_name",
        retry_after=3600,
        hint="Delete documents of it, or use another corpus.",
    )


UNREACHABLE: Final = frozenset(
    {
        ErrorCode.CONNECTION_REFUSED,
        ErrorCode.CONNECTION_ERROR,
        ErrorCode.CONNECTION_TIMEOUT,
        ErrorCode.DNS_ERROR,
        ErrorCode.TLS_ERROR,
    }
)
"""Errors of a site that no connection could be made to."""
CONTENT_LOST: Final = frozenset({ErrorCode.CONTENT_MISSING, ErrorCode.CONTENT_CORRUPT})
"""Stored content that is not there any more, or is not what was stored."""
GONE: Final = frozenset({http_code(404), http_code(410)})
"""A site's answers that say that there is no such page."""
