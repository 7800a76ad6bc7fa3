"""Marks of canceled jobs in the state table, for the workers that still have their messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import DirectTimes, LazyClient
from indexmill.platform.consumer.delivery_log import KEPT_S
from indexmill.platform.time import Clock

_LOG: Final = logging.getLogger(__name__)
_TIMES: Final = DirectTimes(connect_s=0.5, answer_s=1.0)
_WRITES: Final = 25


class DynamoDbCancels:
    """Items `pk` = "canceled#<job id>" with the attempt that was canceled; the TTL attribute is `expires_at`.

    A mark spares requests to a site and decides nothing else: errors are logged and ignored.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", direct=_TIMES)

    def mark(self, attempts: Mapping[str, int]) -> None:
        """Mark jobs, by id with the attempt, for longer than a queue keeps a message."""
        expires = {"N": str(int(self._clock.now().timestamp()) + KEPT_S)}
        items = [
            {**_key(job_id), "attempt": {"N": str(attempt)}, "expires_at": expires}
            for job_id, attempt in attempts.items()
        ]
        try:
            for start in range(0, len(items), _WRITES):
                part = [{"PutRequest": {"Item": item}} for item in items[start : start + _WRITES]]
                answer = self._dynamodb.batch_write_item(RequestItems={self._table: part})
                if answer.get("UnprocessedItems"):
                    self._dynamodb.batch_write_item(RequestItems=answer["UnprocessedItems"])
        except (BotoCoreError, ClientError):
            _LOG.warning("marks of canceled jobs cannot be written", exc_info=True)

    def canceled(self, job_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the canceled attempts of those of at most 100 jobs that are marked, by one request."""
        asked = {"Keys": [_key(job_id) for job_id in dict.fromkeys(job_ids)], "ConsistentRead": True}
        try:
            answer = self._dynamodb.batch_get_item(RequestItems={self._table: asked})
            found = answer["Responses"].get(self._table, [])
            return {item["pk"]["S"].partition("#")[2]: int(item["attempt"]["N"]) for item in found}
        except (BotoCoreError, ClientError, KeyError, ValueError):
            _LOG.warning("marks of canceled jobs cannot be read", exc_info=True)
            return {}


def _key(job_id: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"canceled#{job_id}"}}
