"""Errors of the client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from indexmill.contracts.job import Job

if TYPE_CHECKING:
    from indexmill.contracts.http_actions import BatchSummary


class ApiError(Exception):
    """The service answered with an error.

    `status` is 0 when no answer came; `code` is then `connection_error`. `retry_after` is in seconds; `field`
    names the input that is wrong, and `hint` says what to do.
    """

    field: str | None = None
    hint: str | None = None

    def __init__(
        self,
        code: str,
        message: str,
        status: int,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code} ({status}): {message}" + (f" [request {request_id}]" if request_id else ""))
        self.code = code
        self.message = message
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after


class WaitTimeout(Exception):
    """Some jobs did not end in time; `jobs` are all of them as last read."""

    def __init__(self, jobs: Sequence[Job], seconds: float) -> None:
        open_ = sum(not job.status.terminal for job in jobs)
        super().__init__(f"{open_} of {len(jobs)} jobs were not finished after {seconds:g} s")
        self.jobs = list(jobs)


class BatchTimeout(Exception):
    """Jobs of a batch did not end in time; `summary` is what was read last."""

    def __init__(self, summary: BatchSummary, seconds: float) -> None:
        open_ = summary.total - summary.done - summary.failed
        super().__init__(f"{open_} of {summary.total} jobs were not finished after {seconds:g} s")
        self.summary = summary


def api_error(status: int, reason: str, body: str) -> ApiError:
    """Return the error of an envelope; upstream_error for another body (a proxy's, the gateway's)."""
    try:
        envelope = json.loads(body)["error"]
        code, message = str(envelope["code"]), str(envelope["message"])
    except (ValueError, KeyError, TypeError):
        return ApiError("upstream_error", body[:200] or reason, status)
    retry_after = envelope.get("retry_after")
    error = ApiError(
        code,
        message,
        status,
        envelope.get("request_id"),
        float(retry_after) if isinstance(retry_after, int | float) else None,
    )
    error.field, error.hint = envelope.get("field"), envelope.get("hint")
    return error
