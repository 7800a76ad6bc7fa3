"""BreakerStates in the state table: one item per breaker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import DirectTimes, LazyClient
from indexmill.platform.breakers import NAMES, BreakerState, StatesUnavailable
from indexmill.platform.time import Clock

_KEPT_S: Final = 86_400
_READ_TIMEOUT_S: Final = 2.0
WHILE_A_CALLER_WAITS: Final = DirectTimes(connect_s=0.3, answer_s=0.5)
"""Limits of requests that an answer waits for."""
_UNCHANGED: Final = "version = :version"
_NEW: Final = "attribute_not_exists(pk) OR expires_at <= :now OR version = :version"


class DynamoDbBreakers:
    """Items `pk` = "breaker#<name>"; an item that was not changed for a day expires."""

    def __init__(
        self, table: str, clock: Clock, dynamodb: Any | None = None, *, direct: DirectTimes | None = None
    ) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing, with `direct`."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", read_timeout_s=_READ_TIMEOUT_S, direct=direct)

    def read(self) -> Mapping[str, BreakerState]:
        """Return every breaker, in one call."""
        asked = {self._table: {"Keys": [_key(name) for name in NAMES], "ConsistentRead": True}}
        now = self._clock.now().timestamp()
        try:
            answer = self._dynamodb.batch_get_item(RequestItems=asked)
            if answer.get("UnprocessedKeys"):
                raise StatesUnavailable  # a breaker that was not read is not a closed one
            items = {item["pk"]["S"]: item for item in answer["Responses"].get(self._table, [])}
            found = {name: items.get(_key(name)["pk"]["S"]) for name in NAMES}
            return {
                name: _state(item) if item and float(item["expires_at"]["N"]) > now else BreakerState()
                for name, item in found.items()
            }
        except (BotoCoreError, ClientError, KeyError, ValueError) as error:
            raise StatesUnavailable from error

    def replace(self, name: str, old: BreakerState, new: BreakerState) -> bool:
        """Write `new` on the condition that the version is still that of `old`."""
        now = self._clock.now().timestamp()
        item = {**_key(name), **_item(new), "expires_at": {"N": str(int(now) + _KEPT_S)}}
        values = {":version": {"N": str(old.version)}}
        try:
            self._dynamodb.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression=_UNCHANGED if old.version else _NEW,
                ExpressionAttributeValues=values if old.version else {**values, ":now": {"N": str(int(now))}},
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
                return False
            raise StatesUnavailable from error
        except BotoCoreError as error:
            raise StatesUnavailable from error
        return True


def _key(name: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"breaker#{name}"}}


def _item(state: BreakerState) -> dict[str, dict[str, str]]:
    return {
        "failures": {"N": str(state.failures)},
        "failed_at": {"N": repr(state.failed_at)},
        "opened_at": {"N": repr(state.opened_at)},
        "open_until": {"N": repr(state.open_until)},
        "probe_until": {"N": repr(state.probe_until)},
        "version": {"N": str(state.version)},
        "closed_at": {"N": repr(state.closed_at)},
        "refusal": {"S": state.refusal},
    }


def _state(item: Mapping[str, Mapping[str, str]]) -> BreakerState:
    return BreakerState(
        failures=int(item["failures"]["N"]),
        failed_at=float(item["failed_at"]["N"]),
        opened_at=float(item["opened_at"]["N"]),
        open_until=float(item["open_until"]["N"]),
        probe_until=float(item["probe_until"]["N"]),
        version=int(item["version"]["N"]),
        # The release before writes neither.
        closed_at=float(item.get("closed_at", {}).get("N", 0.0)),
        refusal=item.get("refusal", {}).get("S", ""),
    )
