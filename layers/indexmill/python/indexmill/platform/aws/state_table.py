"""State table: items that all processes share; each owner has a StateTable, which takes plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.time import Clock

T = TypeVar("T")
Item = dict[str, Any]
"""Attributes by name: str, int, float, bool, bytes, and sets of str."""

_REFUSED: Final = "ConditionalCheckFailedException"
_THROTTLED: Final = frozenset(
    ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")
)
_READS: Final = 100
_WRITES: Final = 25
_TOLERATED_S: Final = 2.0
_HALF_S: Final = 0.5
"""The store tells whole seconds."""


class StoreUnavailable(Exception):
    """The table did not answer in time, or not usefully."""


class ConditionFailed(Exception):
    """Nothing was written: the condition did not hold."""

    def __init__(self, old: Item | None) -> None:
        """`old` is the item as it is, where it was asked for and exists."""
        super().__init__("the condition does not hold")
        self.old = old


class StoreClock:
    """Seconds since the epoch by this machine, corrected by the store's answers when its clock jumps."""

    def __init__(self, clock: Clock) -> None:
        """`clock` is right until the store says otherwise."""
        self._clock = clock
        self._offset = 0.0
        self._heard: tuple[str, float] = ("", 0.0)

    def now(self) -> float:
        """Return the time."""
        return self._clock.now().timestamp() + self._offset

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return self._clock.monotonic()

    def heard(self, second: float) -> None:
        """Note that the store answered in this second of its own clock."""
        ahead = self.now() - second
        if not -_TOLERATED_S <= ahead <= 1 + _TOLERATED_S:
            self._offset -= ahead - _HALF_S

    def heard_in(self, answer: Mapping[str, Any]) -> None:
        """Note the time of an answer of DynamoDB, or of its error, as botocore returns it."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        if not date:
            return
        if date != self._heard[0]:
            try:
                self._heard = date, parsedate_to_datetime(date).timestamp()
            except ValueError:
                return
        # Also in the same second: this machine's clock may have jumped meanwhile.
        self.heard(self._heard[1])


class StateTable:
    """The table for one owner. Every call raises StoreUnavailable.

    A table that failed is left alone for the owner's quiet period: its time-outs would cost more than it is
    worth. One that throttles, or refuses a condition, has answered.
    """

    def __init__(
        self,
        name: str,
        clock: Clock | StoreClock,
        dynamodb: Any | None = None,
        *,
        quiet_s: float = 0.0,
        **client: Any,
    ) -> None:
        """Only a StoreClock is corrected. `dynamodb` is a low-level client, made of `client` if missing."""
        self._name = name
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", **client)
        self._quiet_s = quiet_s
        self._quiet_until = -math.inf

    @property
    def is_quiet(self) -> bool:
        """Return whether the table is left alone: calls raise StoreUnavailable without a request."""
        return self._clock.monotonic() < self._quiet_until

    def now(self) -> float:
        """Return the second since the epoch."""
        now = self._clock.now()
        return now if isinstance(now, float) else now.timestamp()

    def get(self, key: str, *, consistent: bool = False, expired: bool = False) -> Item | None:
        """Return an item; the table deletes those that have expired late: `expired` returns them."""
        options = {"ConsistentRead": True} if consistent else {}
        item = _plain(self._call("get_item", Key=_key(key), **options).get("Item"))
        return item if item and (expired or self._is_kept(item)) else None

    def read(
        self, keys: Sequence[str], *, consistent: bool = True, expired: bool = False, partial: bool = False
    ) -> dict[str, Item]:
        """Return those items that exist by their keys, a hundred a request.

        What the table leaves out is asked for again; when it is left out twice, `partial` does without.
        """
        found: dict[str, Item] = {}
        options = {"ConsistentRead": True} if consistent else {}
        for part in _parts(list(dict.fromkeys(keys)), _READS):
            asked: Any = {self._name: {"Keys": [_key(key) for key in part], **options}}
            for _ in range(2):
                answer = self._call("batch_get_item", RequestItems=asked)
                if "Responses" not in answer:
                    raise StoreUnavailable
                items = (_plain(each) or {} for each in answer["Responses"].get(self._name, ()))
                found |= {item["pk"]: item for item in items if expired or self._is_kept(item)}
                asked = answer.get("UnprocessedKeys")
                if not asked:
                    break
            if asked and not partial:
                raise StoreUnavailable
        return found

    def put(
        self, key: str, item: Item, *, only_if: str = "", values: Item | None = None, tells_old: bool = False
    ) -> None:
        """Replace an item. Raises ConditionFailed, which tells the old item if it should."""
        condition = _condition(only_if, values, tells_old=tells_old)
        self._call("put_item", Item={**_key(key), **_typed(item)}, **condition)

    def update(
        self,
        key: str,
        change: str,
        values: Item | None = None,
        *,
        only_if: str = "",
        returns: str = "",
        tells_old: bool = False,
    ) -> Item | None:
        """Change attributes by an expression; return those that `returns` says. Raises ConditionFailed."""
        condition = _condition(only_if, values, tells_old=tells_old)
        if returns:
            condition["ReturnValues"] = returns
        answer = self._call("update_item", Key=_key(key), UpdateExpression=change, **condition)
        return _plain(answer.get("Attributes"))

    def delete(self, key: str) -> bool:
        """Delete an item; return whether there was one."""
        return "Attributes" in self._call("delete_item", Key=_key(key), ReturnValues="ALL_OLD")

    def write(self, items: Mapping[str, Item]) -> None:
        """Replace items, twenty-five a request; what the table leaves out is written again."""
        for part in _parts(list(items), _WRITES):
            puts = [{"PutRequest": {"Item": {**_key(key), **_typed(items[key])}}} for key in part]
            answer = self._call("batch_write_item", RequestItems={self._name: puts})
            if answer.get("UnprocessedItems"):
                self._call("batch_write_item", RequestItems=answer["UnprocessedItems"])

    def _call(self, operation: str, **asked: Any) -> dict[str, Any]:
        if self.is_quiet:
            raise StoreUnavailable
        if "RequestItems" not in asked:
            asked["TableName"] = self._name
        try:
            answer: dict[str, Any] = getattr(self._dynamodb, operation)(**asked)
        except ClientError as error:
            refused: Any = error.response
            self._hear(refused)
            code = refused.get("Error", {}).get("Code")
            if code == _REFUSED:
                raise ConditionFailed(_plain(refused.get("Item"))) from error
            if code not in _THROTTLED:
                self._quiet_until = self._clock.monotonic() + self._quiet_s
            raise StoreUnavailable from error
        except BotoCoreError as error:
            self._quiet_until = self._clock.monotonic() + self._quiet_s
            raise StoreUnavailable from error
        self._hear(answer)
        return answer

    def _hear(self, answer: Mapping[str, Any]) -> None:
        if isinstance(self._clock, StoreClock):
            self._clock.heard_in(answer)

    def _is_kept(self, item: Item) -> bool:
        end = item.get("expires_at", math.inf)
        return isinstance(end, int | float) and end > self.now()


def _key(key: str) -> dict[str, Any]:
    return {"pk": {"S": key}}


def _condition(only_if: str, values: Item | None, *, tells_old: bool) -> dict[str, Any]:
    condition: dict[str, Any] = {"ConditionExpression": only_if} if only_if else {}
    if values:
        condition["ExpressionAttributeValues"] = _typed(values)
    if tells_old:
        condition["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return condition


def _typed(item: Item) -> dict[str, Any]:
    """Return attributes as DynamoDB's API has them; a number is its shortest text."""
    return {name: _value(value) for name, value in item.items()}


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | float):
        return {"N": repr(value)}
    if isinstance(value, set):
        return {"SS": sorted(value)}
    return {"S" if isinstance(value, str) else "B": value}


def _plain(item: Mapping[str, Mapping[str, Any]] | None) -> Item | None:
    if not item:
        return None
    return {name: _read(value) for name, value in item.items()}


def _read(value: Mapping[str, Any]) -> Any:
    ((kind, raw),) = value.items()
    if kind == "N":
        return int(raw) if raw.lstrip("-").isdecimal() else float(raw)
    return set(raw) if kind == "SS" else raw


def _parts(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), size):
        yield things[start : start + size]
