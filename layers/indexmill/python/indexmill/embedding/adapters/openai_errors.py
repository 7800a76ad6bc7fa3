"""Translation of the `openai` client's exceptions into the library's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError
from indexmill.embedding.classify import failure, status_failure

_LONGEST_WAIT_S: Final = 43_200
"""A queue can hold a message back for 12 hours."""
_TOKEN_LIMIT_CODES: Final = frozenset(
    ("context_length_exceeded", "max_tokens_per_request", "string_above_max_length")
)
_TOKEN_LIMIT: Final = re.compile(
    r"context (length|window)|max\w* (\w+ )?(input )?tokens|tokens? limit|too many tokens"
    r"|less than \d+ tokens|(maximum|max)\w* (sequence|input) length",
    re.IGNORECASE,
)


def translated(error: Exception, now: datetime) -> IndexmillError | None:
    """Return our error for one of the client's or its transport's; None for any other."""
    import httpx2
    import openai

    # By status rather than by class: BadRequestError is an APIStatusError too, and must never be tried again.
    if isinstance(error, openai.APIStatusError):
        return _of_status(error.status_code, str(error.code), error.message, error.response.headers, now)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return failure(ErrorCode.EMBEDDING_UNAVAILABLE, "The embedding endpoint took too long.")
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        return failure(ErrorCode.EMBEDDING_UNAVAILABLE)
    if isinstance(error, openai.APIError):
        return failure(ErrorCode.EMBEDDING_BAD_RESPONSE)
    return None


def _of_status(
    status: int, code: str, message: str, headers: Mapping[str, str], now: datetime
) -> IndexmillError:
    says_so = status in (400, 413, 422) and _TOKEN_LIMIT.search(message) is not None
    return status_failure(
        status,
        too_long=code in _TOKEN_LIMIT_CODES or says_so,
        retry_after=wait_asked_for(headers.get("retry-after"), now),
    )


def wait_asked_for(value: str | None, now: datetime) -> int | None:
    """Return the seconds of a Retry-After header, a number or a date; None when it is absent or senseless."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    if not seconds > 0:
        return None
    return int(min(seconds, _LONGEST_WAIT_S) + 0.999)
