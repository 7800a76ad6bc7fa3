"""Table of the errors of the embed stage: which are transient, which count for a breaker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError, Refused, TransientError


@dataclass(frozen=True, slots=True)
class Failure:
    """Handling of one code. The message names no address: callers must not learn it."""

    transient: bool
    message: str
    outage: bool = False
    """Says something about the other side rather than about a document: it counts for the breaker."""
    of_document: bool = False
    """One document of a batch can cause it: each is tried by itself then."""


_FAILURES: Final[dict[str, Failure]] = {
    ErrorCode.EMBEDDING_UNAVAILABLE: Failure(True, "The embedding endpoint cannot be reached.", outage=True),
    ErrorCode.OPENAI_RATE_LIMIT: Failure(
        True, "The embedding endpoint's rate limit is reached.", outage=True
    ),
    ErrorCode.EMBEDDING_BAD_RESPONSE: Failure(
        True, "The embedding endpoint's answer is unreadable.", outage=True
    ),
    ErrorCode.EMBEDDING_INCOMPLETE: Failure(True, "Vectors are missing.", of_document=True),
    ErrorCode.EMBEDDING_INVALID: Failure(
        True, "The embedding endpoint sent a vector without direction.", of_document=True
    ),
    ErrorCode.SEARCH_UNAVAILABLE: Failure(True, "Search is not reachable right now.", outage=True),
    ErrorCode.TOKEN_LIMIT_EXCEEDED: Failure(
        False, "A text has more tokens than the model takes.", of_document=True
    ),
    ErrorCode.EMBEDDING_REJECTED: Failure(
        False, "The embedding endpoint refused the request.", of_document=True
    ),
    ErrorCode.DIMENSION_MISMATCH: Failure(
        False, "The model gives vectors of another dimension.", of_document=True
    ),
    ErrorCode.VECTOR_REJECTED: Failure(False, "The index cannot keep this chunk.", of_document=True),
}
OUTAGES: Final = frozenset(code for code, row in _FAILURES.items() if row.outage)
"""Codes that count for a breaker."""
_TRANSIENT_STATUS: Final = frozenset((408, 409, 425, 429))
_REFUSALS: Final = frozenset((401, 403, 404))
"""Authentication, permission, no such model: of us rather than of a text. Every other 4xx is permanent."""


def failure(code: str, message: str | None = None, *, retry_after: int | None = None) -> IndexmillError:
    """Return the error for `code` of the table; `message` says it more precisely."""
    row = _FAILURES[code]
    kind = TransientError if row.transient else PermanentError
    return kind(code, message or row.message, retry_after=retry_after)


def status_failure(status: int, *, too_long: bool, retry_after: int | None) -> IndexmillError:
    """Return the error for an endpoint that answered `status`; `too_long`: it says that a text is."""
    if 400 <= status < 500 and status not in _TRANSIENT_STATUS:
        if too_long:
            return failure(ErrorCode.TOKEN_LIMIT_EXCEEDED)
        message = f"The embedding endpoint refused the request (HTTP {status})."
        if status in _REFUSALS:
            return Refused(ErrorCode.EMBEDDING_UNAVAILABLE, message)
        return failure(ErrorCode.EMBEDDING_REJECTED, message)
    if status == 429:
        return failure(ErrorCode.OPENAI_RATE_LIMIT, retry_after=retry_after)
    message = f"The embedding endpoint failed (HTTP {status})."
    return failure(ErrorCode.EMBEDDING_UNAVAILABLE, message, retry_after=retry_after)


def is_of_one_document(error: IndexmillError) -> bool:
    """Return whether one document of a batch may be to blame."""
    row = _FAILURES.get(error.code)
    return not error.retryable if row is None else row.of_document
