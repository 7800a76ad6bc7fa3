"""ProgressBoard in the state table: one item per job."""

from __future__ import annotations

import logging
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.progress import WorkProgress
from indexmill.platform.time import Clock

_LOG: Final = logging.getLogger(__name__)
_KEPT_S: Final = 24 * 3600
_QUIET_S: Final = 30.0
"""A table that failed is left alone for so long: its time-outs would cost more than progress is worth."""
_NUMBERS: Final = ("attempt", "chunks_total", "chunks_done", "bytes")


class DynamoDbProgress:
    """Items `pk` = "progress#<job id>"; the table's TTL attribute is `expires_at`."""

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", quick=True)
        self._quiet_until = 0.0

    def put(self, job_id: str, progress: WorkProgress) -> None:
        """Show `progress` for 24 hours."""
        if self._quiet():
            return
        numbers = {name: {"N": str(getattr(progress, name))} for name in _NUMBERS}
        expires = {"expires_at": {"N": str(int(self._clock.now().timestamp()) + _KEPT_S)}}
        try:
            self._dynamodb.put_item(TableName=self._table, Item={**_key(job_id), **numbers, **expires})
        except (BotoCoreError, ClientError):
            self._failed("written")

    def get(self, job_id: str) -> WorkProgress | None:
        """Return the item; the table deletes expired ones late, so the time is compared here."""
        if self._quiet():
            return None
        try:
            item = self._dynamodb.get_item(TableName=self._table, Key=_key(job_id)).get("Item")
            if item is None or float(item["expires_at"]["N"]) <= self._clock.now().timestamp():
                return None
            return WorkProgress(**{name: int(item[name]["N"]) for name in _NUMBERS})
        except (BotoCoreError, ClientError):
            self._failed("read")
        except (KeyError, ValueError):
            _LOG.warning("progress of job %s is unreadable", job_id)
        return None

    def _quiet(self) -> bool:
        return self._clock.monotonic() < self._quiet_until

    def _failed(self, what: str) -> None:
        self._quiet_until = self._clock.monotonic() + _QUIET_S
        _LOG.warning("progress cannot be %s", what, exc_info=True)


def _key(job_id: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"progress#{job_id}"}}
