"""RobotsCache in the state table: one item per origin."""

from __future__ import annotations

import logging
import zlib
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.time import Clock
from indexmill.scraper.ports import KnownRobots

_LOG: Final = logging.getLogger(__name__)
_MAX_ITEM_BYTES: Final = 300_000
_MAX_RULES_BYTES: Final = 2_000_000


class DynamoDbRobots:
    """Items `pk` = "robots#<origin>" with the packed rules; they are read again after `fresh_until`.

    With `unread` the robots.txt could not be read. The table's TTL attribute is `expires_at`; an item
    without `fresh_until`, of a release before, is fresh until then.

    A cache that fails is a cache that forgot: errors are logged and the site is asked again.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb")

    def get(self, origin: str) -> KnownRobots | None:
        """Return what is known; the table deletes expired items late, so the time is compared here."""
        try:
            item = self._dynamodb.get_item(TableName=self._table, Key=_key(origin)).get("Item")
            if item is None:
                return None
            expires_at = float(item["expires_at"]["N"])
            if expires_at <= self._clock.now().timestamp():
                return None
            fresh_until = float(item["fresh_until"]["N"]) if "fresh_until" in item else expires_at
            unread = item.get("unread", {}).get("BOOL", False)
            return KnownRobots(None if unread else _unpacked(item["rules"]["B"]), fresh_until, expires_at)
        except (BotoCoreError, ClientError, KeyError, ValueError, zlib.error):
            _LOG.warning("robots cache cannot be read", exc_info=True)
            return None

    def put(self, origin: str, known: KnownRobots) -> None:
        """Remember `known`, unless it is too large for an item."""
        item: dict[str, Any] = {
            **_key(origin),
            "fresh_until": {"N": str(int(known.fresh_until))},
            "expires_at": {"N": str(int(known.kept_until))},
        }
        if known.rules is None:
            item["unread"] = {"BOOL": True}
        else:
            packed = zlib.compress(known.rules.encode())
            if len(packed) > _MAX_ITEM_BYTES:
                return
            item["rules"] = {"B": packed}
        try:
            self._dynamodb.put_item(TableName=self._table, Item=item)
        except (BotoCoreError, ClientError):
            _LOG.warning("robots cache cannot be written", exc_info=True)


def _unpacked(data: bytes) -> str:
    """Return packed rules. Raises ValueError for a part of them, which would allow too much."""
    unpacker = zlib.decompressobj()
    rules = unpacker.decompress(data, _MAX_RULES_BYTES)
    if not unpacker.eof:
        raise ValueError("cut off")
    return rules.decode()


def _key(origin: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"robots#{origin}"}}
