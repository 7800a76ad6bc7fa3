"""LimitStore in the state table: an item per caller, service and bucket, and one per service.

Windows are `pk` = "door#<service>#<bucket>#<caller>": `n` counts all admitted requests, `s<end>` those of one
slot, by its end in hundredths of a second, hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import DirectTimes, LazyClient
from indexmill.platform.limits.clock import StoreClock
from indexmill.platform.limits.store import Shared, StoreUnavailable
from indexmill.platform.limits.window import ACTIVE_S, Admission, Window

_TIMES: Final = DirectTimes(connect_s=0.3, answer_s=0.5)
_REFUSED: Final = "ConditionalCheckFailedException"
_MAINTENANCE: Final = "door#maintenance"
_ACTIVE_KEPT_S: Final = 86_400
_NEW_OR_BELOW: Final = (
    "attribute_not_exists(blocked) AND (attribute_not_exists(n) OR (n < ceiling AND most <= :most))"
)
_WITHIN: Final = "attribute_not_exists(blocked) AND n BETWEEN :least AND :last"

Item = Mapping[str, Mapping[str, Any]]


class DynamoDbLimits:
    """Requests are few and short: a store that is slow counts as unavailable."""

    def __init__(self, table: str, clock: StoreClock, dynamodb: Any | None = None) -> None:
        """`clock` is corrected by the answers; `dynamodb` is a low-level client, made when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", direct=_TIMES)

    def admit(self, key: str, admission: Admission) -> tuple[bool, Window | None]:
        """Count the request by one UpdateItem."""
        slot = f"s{admission.slot:x}"
        values = {
            ":one": {"N": "1"},
            ":most": {"N": str(admission.most)},
            ":end": {"N": str(admission.expires_at)},
        }
        if admission.between is None:
            bound = "ceiling = if_not_exists(ceiling, :most), most = if_not_exists(most, :most)"
        else:
            bound = "ceiling = :ceiling, most = :most"
            least, last = admission.between
            values |= {
                ":ceiling": {"N": str(admission.ceiling)},
                ":least": {"N": str(least)},
                ":last": {"N": str(last)},
            }
        update = f"ADD n :one, {slot} :one SET {bound}, expires_at = :end"
        if admission.active is not None:
            update += ", seen = :seen"
            values[":seen"] = {"N": str(admission.active)}
        if admission.drop:
            update += " REMOVE " + _names(admission.drop)
        try:
            before = self._ask(
                self._dynamodb.update_item,
                TableName=self._table,
                Key=_door(key),
                UpdateExpression=update,
                ConditionExpression=_WITHIN if admission.between else _NEW_OR_BELOW,
                ExpressionAttributeValues=values,
                ReturnValues="ALL_OLD",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            ).get("Attributes")
        except ClientError as error:
            refused: Any = error.response
            return False, _window(refused.get("Item"))
        return True, _window(before)

    def forget(self, key: str, slots: Sequence[int]) -> None:
        """Remove counters."""
        self._ask(
            self._dynamodb.update_item,
            TableName=self._table,
            Key=_door(key),
            UpdateExpression="REMOVE " + _names(slots),
        )

    def is_blocked(self, key: str) -> bool:
        """Read the caller's item, eventually consistent."""
        found = self._ask(self._dynamodb.get_item, TableName=self._table, Key=_door(key))
        return "blocked" in found.get("Item", {})

    def move_active(
        self, service: str, bucket: str, old: int | None, new: int, over: Sequence[int]
    ) -> Mapping[int, int]:
        """Change two counters of the service's item."""
        changed, values = f"{bucket}_{new} :one", {":one": {"N": "1"}}
        if old is not None:
            changed += f", {bucket}_{old} :less"
            values[":less"] = {"N": "-1"}
        update = f"ADD {changed} SET expires_at = :end"
        values[":end"] = {"N": str((new + 1) * ACTIVE_S + _ACTIVE_KEPT_S)}
        if over:
            update += " REMOVE " + ", ".join(f"{bucket}_{slot}" for slot in over)
        found = self._ask(
            self._dynamodb.update_item,
            TableName=self._table,
            Key=_active(service),
            UpdateExpression=update,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
        )
        return _counters(found["Attributes"]).get(bucket, {})

    def shared(self, service: str) -> Shared:
        """Read two items at once."""
        return self.read((), (service,))[1][service]

    def read(
        self, keys: Sequence[str], services: Sequence[str]
    ) -> tuple[dict[str, Window], dict[str, Shared]]:
        """Read all of it by one BatchGetItem, of at most 100 items."""
        asked = [*map(_door, keys), *map(_active, services), {"pk": {"S": _MAINTENANCE}}]
        found = self._ask(
            self._dynamodb.batch_get_item, RequestItems={self._table: {"Keys": asked, "ConsistentRead": True}}
        )
        if found.get("UnprocessedKeys"):
            raise StoreUnavailable
        items: dict[str, Item] = {item["pk"]["S"]: item for item in found["Responses"].get(self._table, ())}
        maintenance = items.get(_MAINTENANCE, {}).get("message", {}).get("S")
        windows = {key: _window(items.get(f"door#{key}")) for key in keys}
        return (
            {key: window for key, window in windows.items() if window is not None},
            {each: Shared(_counters(items.get(f"active#{each}", {})), maintenance) for each in services},
        )

    def _ask(self, call: Callable[..., Any], **parameters: Any) -> dict[str, Any]:
        """Raises ClientError for a condition that did not hold, StoreUnavailable for everything else."""
        try:
            answer: dict[str, Any] = call(**parameters)
        except ClientError as error:
            self._clock.heard_in(error.response)
            if error.response.get("Error", {}).get("Code") == _REFUSED:
                raise
            raise StoreUnavailable from error
        except BotoCoreError as error:
            raise StoreUnavailable from error
        self._clock.heard_in(answer)
        return answer


def _door(key: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"door#{key}"}}


def _active(service: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"active#{service}"}}


def _names(slots: Sequence[int]) -> str:
    return ", ".join(f"s{slot:x}" for slot in slots)


def _window(item: Item | None) -> Window | None:
    if not item:
        return None
    try:
        return Window(
            admitted=_number(item, "n"),
            slots={
                int(name[1:], 16): int(value["N"])
                for name, value in item.items()
                if name[0] == "s" and name != "seen"
            },
            ceiling=_number(item, "ceiling"),
            most=_number(item, "most"),
            seen=_number(item, "seen") if "seen" in item else None,
            blocked="blocked" in item,
        )
    except (KeyError, ValueError) as error:
        # Not written by us.
        raise StoreUnavailable from error


def _number(item: Item, name: str) -> int:
    return int(item[name]["N"]) if name in item else 0


def _counters(item: Item) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for name, value in item.items():
        bucket, _, slot = name.rpartition("_")
        if slot.isdecimal():
            found.setdefault(bucket, {})[int(slot)] = int(value["N"])
    return found
