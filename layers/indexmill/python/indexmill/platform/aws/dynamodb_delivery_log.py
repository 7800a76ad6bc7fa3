"""DeliveryLog in the state table: one item per message that was returned to its queue."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.consumer.delivery_log import KEPT_S, DeliveryRecord
from indexmill.platform.time import Clock

_LOG: Final = logging.getLogger(__name__)
_READ_TIMEOUT_S: Final = 2.0
_WRITES: Final = 25
_READS: Final = 100


class DynamoDbDeliveryLog:
    """Items `pk` = "release#<message id>"; the table's TTL attribute is `expires_at`.

    Records that cannot be read or written are lost, which costs messages more tries and no job: so errors are
    logged and ignored.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", read_timeout_s=_READ_TIMEOUT_S)

    def read(self, message_ids: Sequence[str]) -> Mapping[str, DeliveryRecord]:
        """Return what is known; the table deletes expired items late, so the time is compared here."""
        found: dict[str, DeliveryRecord] = {}
        now = self._clock.now().timestamp()
        try:
            for part in _parts(list(dict.fromkeys(message_ids)), _READS):
                keys = [_key(message_id) for message_id in part]
                asked = {self._table: {"Keys": keys, "ConsistentRead": True}}
                for item in self._items(asked):
                    if float(item["expires_at"]["N"]) > now:
                        found[item["pk"]["S"].partition("#")[2]] = _entry(item)
        except (BotoCoreError, ClientError, KeyError, ValueError):
            _LOG.warning("delivery records cannot be read", exc_info=True)
        return found

    def _items(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the items; unprocessed keys are requested one more time."""
        answer = self._dynamodb.batch_get_item(RequestItems=asked)
        items: list[dict[str, Any]] = answer["Responses"].get(self._table, [])
        if answer.get("UnprocessedKeys"):
            rest = self._dynamodb.batch_get_item(RequestItems=answer["UnprocessedKeys"])
            items += rest["Responses"].get(self._table, [])
        return items

    def write(self, entries: Mapping[str, DeliveryRecord]) -> None:
        """Write all, twenty-five a call."""
        expires_at = int(self._clock.now().timestamp()) + KEPT_S
        items = [
            {**_item(entry), **_key(key), "expires_at": {"N": str(expires_at)}}
            for key, entry in entries.items()
        ]
        try:
            for part in _parts(items, _WRITES):
                asked = {self._table: [{"PutRequest": {"Item": item}} for item in part]}
                answer = self._dynamodb.batch_write_item(RequestItems=asked)
                if answer.get("UnprocessedItems"):
                    self._dynamodb.batch_write_item(RequestItems=answer["UnprocessedItems"])
        except (BotoCoreError, ClientError):
            _LOG.warning("delivery records cannot be written", exc_info=True)


def _parts(things: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), size):
        yield things[start : start + size]


def _key(message_id: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"release#{message_id}"}}


def _item(entry: DeliveryRecord) -> dict[str, dict[str, Any]]:
    item: dict[str, dict[str, Any]] = {
        "released": {"N": str(entry.receives)},
        "tries": {"N": str(entry.tries)},
        "crashes": {"N": str(entry.crashes)},
        "begun": {"BOOL": entry.tried_alone},
    }
    texts = {"last_error": entry.last_error, "resume": entry.resume}
    return item | {name: {"S": text} for name, text in texts.items() if text is not None}


def _entry(item: Mapping[str, Mapping[str, Any]]) -> DeliveryRecord:
    return DeliveryRecord(
        receives=int(item["released"]["N"]),
        tries=int(item["tries"]["N"]),
        crashes=int(item["crashes"]["N"]),
        tried_alone=bool(item["begun"]["BOOL"]),
        last_error=item["last_error"]["S"] if "last_error" in item else None,
        resume=item["resume"]["S"] if "resume" in item else None,
    )
