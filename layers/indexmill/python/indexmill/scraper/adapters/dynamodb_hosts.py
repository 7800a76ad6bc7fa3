"""HostStates in the state table: one item per site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import DirectTimes, LazyClient
from indexmill.platform.limits.clock import StoreClock
from indexmill.platform.limits.store import StoreUnavailable
from indexmill.scraper.token_bucket import HostState

_TIMES: Final = DirectTimes(connect_s=0.5, answer_s=1.0)
_REFUSED: Final = "ConditionalCheckFailedException"
_KEPT_S: Final = 86_400
"""After a day without a request nothing of a state matters."""


class DynamoDbHosts:
    """Items `pk` = "host#<site>" with a version and the state as JSON; `expires_at` is the table's TTL."""

    def __init__(self, table: str, clock: StoreClock, dynamodb: Any | None = None) -> None:
        """`clock` is corrected by the answers; `dynamodb` is a low-level client, made when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", direct=_TIMES)

    def replace(self, site: str, version: int, new: HostState) -> tuple[int, HostState] | None:
        """Replace the item by one PutItem, if it has the known version."""
        item = {
            "pk": {"S": f"host#{site}"},
            "version": {"N": str(version + 1)},
            "state": {"S": _text(new)},
            "expires_at": {"N": str(int(self._clock.now()) + _KEPT_S)},
        }
        if new.cause:
            # Not in the state, of which the release before knows every field.
            item["cause"] = {"S": new.cause}
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if version:
            condition = {
                "ConditionExpression": "version = :known",
                "ExpressionAttributeValues": {":known": {"N": str(version)}},
            }
        try:
            answer = self._dynamodb.put_item(
                TableName=self._table, Item=item, ReturnValuesOnConditionCheckFailure="ALL_OLD", **condition
            )
        except ClientError as error:
            refused: Any = error.response
            self._clock.heard_in(refused)
            if refused.get("Error", {}).get("Code") != _REFUSED:
                raise StoreUnavailable from error
            return _read(refused.get("Item"))
        except BotoCoreError as error:
            raise StoreUnavailable from error
        self._clock.heard_in(answer)
        return None


def _text(state: HostState) -> str:
    """Return the state as JSON, with times in whole milliseconds."""
    return json.dumps(
        {
            "full_at": round(state.full_at, 3),
            "promised": {key: round(at, 3) for key, at in state.promised.items()},
            "running": {key: round(at, 3) for key, at in state.running.items()},
            "failures": state.failures,
            "open_until": round(state.open_until, 3),
        },
        separators=(",", ":"),
    )


def _read(item: Mapping[str, Mapping[str, Any]] | None) -> tuple[int, HostState]:
    """Return version and state; an item that the table has deleted has none."""
    if not item:
        return 0, HostState()
    try:
        cause = item["cause"]["S"] if "cause" in item else ""
        return int(item["version"]["N"]), HostState(**json.loads(item["state"]["S"]), cause=cause)
    except (KeyError, TypeError, ValueError) as error:
        # Not written by us.
        raise StoreUnavailable from error
