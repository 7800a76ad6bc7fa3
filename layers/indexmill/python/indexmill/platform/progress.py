"""Items of jobs in the state table that decide nothing: progress inside a stage, marks of canceled jobs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from indexmill.platform.aws.clients import QUICK, CallLimits
from indexmill.platform.aws.state_table import StateTable, StoreUnavailable
from indexmill.platform.consumer.delivery_log import KEPT_S
from indexmill.platform.time import Clock

LONG_CHUNKS: Final = 256
"""A document with more chunks is long work; the progress of a shorter one is neither written nor read."""
_KEPT_S: Final = 24 * 3600
_QUIET_S: Final = 30.0
"""A table that failed is left alone for so long: its time-outs would cost more than progress is worth."""
_LIMITS: Final = CallLimits(connect_s=0.5, answer_s=1.0, tries=1)
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """Progress of one attempt of one job."""

    attempt: int
    chunks_total: int
    chunks_done: int
    bytes: int
    """Of the text that is done."""


_FIELDS: Final = tuple(each.name for each in fields(WorkProgress))


class ProgressBoard:
    """Items "progress#<job id>" of the state table, for a day. A table that is unavailable shows nothing."""

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb, quiet_s=_QUIET_S, limits=QUICK)

    def put(self, job_id: str, progress: WorkProgress) -> None:
        """Show `progress` in place of what was there."""
        if self._table.is_quiet:
            return
        try:
            end = int(self._table.now()) + _KEPT_S
            self._table.put(f"progress#{job_id}", {**asdict(progress), "expires_at": end})
        except StoreUnavailable:
            _LOG.warning("progress cannot be written", exc_info=True)

    def get(self, job_id: str) -> WorkProgress | None:
        """Return what was shown last; None for nothing."""
        if self._table.is_quiet:
            return None
        try:
            item = self._table.get(f"progress#{job_id}")
            return WorkProgress(**{name: int(item[name]) for name in _FIELDS}) if item else None
        except StoreUnavailable:
            _LOG.warning("progress cannot be read", exc_info=True)
        except (KeyError, ValueError):
            _LOG.warning("progress of job %s is unreadable", job_id)
        return None


class Cancels:
    """Items "canceled#<job id>" with the attempt that was canceled, for workers that still have its message.

    A mark spares requests to a site and decides nothing else: errors are logged and ignored.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb, limits=_LIMITS)

    def mark(self, attempts: Mapping[str, int]) -> None:
        """Mark jobs, by id with the attempt, for longer than a queue keeps a message."""
        end = int(self._table.now()) + KEPT_S
        marks = {
            f"canceled#{job_id}": {"attempt": attempt, "expires_at": end}
            for job_id, attempt in attempts.items()
        }
        try:
            self._table.write(marks)
        except StoreUnavailable:
            _LOG.warning("marks of canceled jobs cannot be written", exc_info=True)

    def canceled(self, job_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the canceled attempts of those of at most 100 jobs that are marked, by one request."""
        try:
            found = self._table.read([f"canceled#{job_id}" for job_id in job_ids], partial=True)
            return {key.partition("#")[2]: int(item["attempt"]) for key, item in found.items()}
        except (StoreUnavailable, KeyError, ValueError):
            _LOG.warning("marks of canceled jobs cannot be read", exc_info=True)
            return {}
