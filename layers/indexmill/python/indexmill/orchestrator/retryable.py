"""Table of the failures that a retry can fix."""

from __future__ import annotations

import re
from typing import Final

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import JobError, JobStatus

# A worker's own retries end as max_retries_exceeded; the other codes are reported at once by stages that run
# elsewhere.
_HELPABLE: Final = frozenset(
    {
        ErrorCode.MAX_RETRIES_EXCEEDED,
        ErrorCode.POISON_MESSAGE,
        ErrorCode.STUCK_TIMEOUT,
        ErrorCode.CANCELED,
        ErrorCode.DEPENDENCY_FAILED,
        ErrorCode.INTERNAL_ERROR,
        ErrorCode.WORKER_CRASHED,
        ErrorCode.TIMED_OUT,
        ErrorCode.CONTENT_MISSING,
        ErrorCode.CONTENT_CORRUPT,
        ErrorCode.CONNECTION_REFUSED,
        ErrorCode.CONNECTION_ERROR,
        ErrorCode.CONNECTION_TIMEOUT,
        ErrorCode.READ_TIMEOUT,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.TLS_ERROR,
        ErrorCode.DNS_ERROR,
        ErrorCode.ROBOTS_UNAVAILABLE,
        ErrorCode.OPENAI_RATE_LIMIT,
        ErrorCode.EMBEDDING_INCOMPLETE,
        ErrorCode.EMBEDDING_INVALID,
        ErrorCode.EMBEDDING_BAD_RESPONSE,
        ErrorCode.DATABASE_UNAVAILABLE,
        ErrorCode.SEARCH_UNAVAILABLE,
        ErrorCode.EMBEDDING_UNAVAILABLE,
        ErrorCode.CHUNKING_UNAVAILABLE,
        ErrorCode.QUEUE_UNAVAILABLE,
        ErrorCode.STORAGE_UNAVAILABLE,
    }
)
_PASSING_STATUS: Final = re.compile(r"http_(408|425|429|5\d\d)")


def retryable(status: JobStatus, error: JobError | None) -> bool:
    """Return whether the job failed for a reason that may have passed."""
    if status is not JobStatus.FAILED or error is None:
        return False
    return error.code in _HELPABLE or _PASSING_STATUS.fullmatch(error.code) is not None
