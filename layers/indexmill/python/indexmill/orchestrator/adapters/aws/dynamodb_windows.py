"""Windows in the state table: one item with the set of places that are taken."""

from __future__ import annotations

import logging
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.identity import new_id
from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.time import Clock

_LOG: Final = logging.getLogger(__name__)
_KEY: Final = {"pk": {"S": "stream-windows"}}
_ITEM_KEPT_S: Final = 24 * 3600
_REFUSED: Final = "ConditionalCheckFailedException"


class DynamoDbPlaces:
    """A place is "<epoch second of its end>#<id>"; one whose process died is removed when room is needed."""

    def __init__(self, table: str, limit: int, clock: Clock, dynamodb: Any | None = None) -> None:
        """At most `limit` places; `dynamodb` is a low-level client, made on first use when it is missing."""
        self._table = table
        self._limit = limit
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", quick=True)

    def enter(self, seconds: float) -> str | None:
        """Take a slot by one conditional write; when all are taken, by two more calls if some expired."""
        if self._limit < 1:
            return None
        try:
            return self._take(seconds) or (self._take(seconds) if self._clear() else None)
        except (BotoCoreError, ClientError):
            _LOG.warning("stream windows cannot be counted", exc_info=True)
            return None

    def leave(self, place: str) -> None:
        """Give the place back."""
        try:
            self._remove([place])
        except (BotoCoreError, ClientError):
            _LOG.warning("a stream window's place is kept until its end", exc_info=True)

    def _take(self, seconds: float) -> str | None:
        now = self._clock.now().timestamp()
        place = f"{int(now + seconds) + 1}#{new_id()}"
        values = {
            ":place": {"SS": [place]},
            ":limit": {"N": str(self._limit)},
            ":end": {"N": str(int(now) + _ITEM_KEPT_S)},
        }
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key=_KEY,
                UpdateExpression="ADD places :place SET expires_at = :end",
                ConditionExpression="attribute_not_exists(places) OR size(places) < :limit",
                ExpressionAttributeValues=values,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == _REFUSED:
                return None
            raise
        return place

    def _clear(self) -> bool:
        """Remove the expired slots and return whether there were any."""
        item = self._dynamodb.get_item(TableName=self._table, Key=_KEY, ConsistentRead=True).get("Item", {})
        now = self._clock.now().timestamp()
        over = [place for place in item.get("places", {}).get("SS", ()) if int(place.partition("#")[0]) < now]
        if over:
            self._remove(over)
        return bool(over)

    def _remove(self, places: list[str]) -> None:
        self._dynamodb.update_item(
            TableName=self._table,
            Key=_KEY,
            UpdateExpression="DELETE places :places",
            ExpressionAttributeValues={":places": {"SS": places}},
        )
