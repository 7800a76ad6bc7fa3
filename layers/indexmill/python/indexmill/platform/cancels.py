"""Marks of canceled jobs, for the workers that still have their messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from indexmill.platform.aws.clients import DirectTimes
from indexmill.platform.aws.state_table import StateTable, StoreUnavailable
from indexmill.platform.consumer.delivery_log import KEPT_S
from indexmill.platform.time import Clock

_LOG: Final = logging.getLogger(__name__)
_TIMES: Final = DirectTimes(connect_s=0.5, answer_s=1.0)


class Cancels:
    """Items "canceled#<job id>" of the state table with the attempt that was canceled.

    A mark spares requests to a site and decides nothing else: errors are logged and ignored.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb, direct=_TIMES)

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
