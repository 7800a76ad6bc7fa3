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
from enum import StrEnum
from typing import Final


class ErrorCode(StrEnum):
    """Every code of an error envelope, a job's error or a metric dimension."""

    BAD_REQUEST = "bad_request"
    MALFORMED_JSON = "malformed_json"
    INVALID_ENCODING = "invalid_encoding"
    INVALID_HEADER = "invalid_header"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    INVALID_API_KEY = "invalid_api_key"
    BAD_SIGNATURE = "bad_signature"
    STALE_TIMESTAMP = "stale_timestamp"
    FORBIDDEN = "forbidden"
    REQUEST_BLOCKED = "request_blocked"
    CALLER_BLOCKED = "caller_blocked"
    NOT_FOUND = "not_found"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    INVALID_TRANSITION = "invalid_transition"
    REQUEST_TIMEOUT = "request_timeout"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    RESPONSE_TOO_LARGE = "response_too_large"
    URI_TOO_LONG = "uri_too_long"
    HEADERS_TOO_LARGE = "headers_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    VALIDATION_ERROR = "validation_error"
    URL_INVALID = "url_invalid"
    URL_SCHEME_NOT_ALLOWED = "url_scheme_not_allowed"
    URL_HOST_NOT_ALLOWED = "url_host_not_allowed"
    URL_CREDENTIALS_NOT_ALLOWED = "url_credentials_not_allowed"
    CORPUS_NAME_INVALID = "corpus_name_invalid"
    RATE_LIMITED = "rate_limited"
    QUEUE_SATURATED = "queue_saturated"
    QUOTA_EXCEEDED = "quota_exceeded"
    GATEWAY_THROTTLED = "gateway_throttled"
    WAF_RATE_LIMITED = "waf_rate_limited"
    INTERNAL_ERROR = "internal_error"
    UPSTREAM_ERROR = "upstream_error"
    MAINTENANCE = "maintenance"
    AUTH_UNAVAILABLE = "auth_unavailable"
    DATABASE_UNAVAILABLE = "database_unavailable"
    SEARCH_UNAVAILABLE = "search_unavailable"
    EMBEDDING_UNAVAILABLE = "embedding_unavailable"
    CHUNKING_UNAVAILABLE = "chunking_unavailable"
    QUEUE_UNAVAILABLE = "queue_unavailable"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    DOMAIN_BUSY = "domain_busy"
    DOMAIN_FAILING = "domain_failing"
    # What ends a job.
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_ERROR = "connection_error"
    CONNECTION_TIMEOUT = "connection_timeout"
    READ_TIMEOUT = "read_timeout"
    TLS_ERROR = "tls_error"
    DNS_ERROR = "dns_error"
    ROBOTS_DISALLOWED = "robots_disallowed"
    ROBOTS_UNAVAILABLE = "robots_unavailable"
    ROBOTS_NOINDEX = "robots_noindex"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    OTHER_HOST = "other_host"
    CONTENT_TOO_LARGE = "content_too_large"
    CONTENT_BOMB = "content_bomb"
    UNSUPPORTED_CONTENT_TYPE = "unsupported_content_type"
    EMPTY_CONTENT = "empty_content"
    LOGIN_REQUIRED = "login_required"
    SOFT_404 = "soft_404"
    NEEDS_JAVASCRIPT = "needs_javascript"
    RENDERER_UNAVAILABLE = "renderer_unavailable"
    RENDER_LIMIT_EXCEEDED = "render_limit_exceeded"
    PARSE_ERROR = "parse_error"
    CONTENT_MISSING = "content_missing"
    CONTENT_CORRUPT = "content_corrupt"
    TOO_MANY_CHUNKS = "too_many_chunks"
    TOKEN_LIMIT_EXCEEDED = "token_limit_exceeded"
    OPENAI_RATE_LIMIT = "openai_rate_limit"
    EMBEDDING_REJECTED = "embedding_rejected"
    EMBEDDING_INCOMPLETE = "embedding_incomplete"
    EMBEDDING_INVALID = "embedding_invalid"
    EMBEDDING_BAD_RESPONSE = "embedding_bad_response"
    DIMENSION_MISMATCH = "dimension_mismatch"
    VECTOR_REJECTED = "vector_rejected"
    MESSAGE_TOO_LARGE = "message_too_large"
    POISON_MESSAGE = "poison_message"
    WORKER_CRASHED = "worker_crashed"
    TIMED_OUT = "timed_out"
    STUCK_TIMEOUT = "stuck_timeout"
    CANCELED = "canceled"
    DEPENDENCY_FAILED = "dependency_failed"
    BUDGET_EXCEEDED = "budget_exceeded"
    MAX_RETRIES_EXCEEDED = "max_retries_exceeded"


_HTTP_CODE: Final = re.compile(r"http_[1-5][0-9]{2}")
HTTP_STATUS: Final[dict[str, int]] = {
    **dict.fromkeys(
        ("bad_request", "malformed_json", "invalid_encoding", "invalid_header", "unsupported_encoding"), 400
    ),
    **dict.fromkeys(("invalid_api_key", "bad_signature", "stale_timestamp"), 401),
    **dict.fromkeys(("forbidden", "request_blocked", "caller_blocked"), 403),
    "not_found": 404,
    "request_timeout": 408,
    **dict.fromkeys(("idempotency_conflict", "invalid_transition"), 409),
    **dict.fromkeys(("payload_too_large", "response_too_large"), 413),
    "uri_too_long": 414,
    "unsupported_media_type": 415,
    "headers_too_large": 431,
    **dict.fromkeys(
        ("rate_limited", "queue_saturated", "quota_exceeded", "gateway_throttled", "waf_rate_limited"), 429
    ),
    "internal_error": 500,
    "upstream_error": 502,
    **dict.fromkeys(
        (
            "maintenance",
            "auth_unavailable",
            "database_unavailable",
            "search_unavailable",
            "embedding_unavailable",
            "chunking_unavailable",
            "domain_busy",
            "domain_failing",
            "queue_unavailable",
            "storage_unavailable",
            "openai_rate_limit",
        ),
        503,
    ),
    "deadline_exceeded": 504,
}
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
GONE: Final = frozenset({http_code(404), http_code(410)})
"""A site's answers that say that there is no such page."""
