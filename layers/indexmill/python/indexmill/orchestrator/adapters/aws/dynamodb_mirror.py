"""Mirror in the state table: what authorizers and the checks of every request read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.orchestrator.store.sweep import CallerRow, Maintenance
from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.limits.policy import BUCKETS
from indexmill.platform.time import Clock

_SERVICES: Final = ("scraper", "chunking", "embedding", "orchestrator")
_SENTINEL: Final = {"pk": {"S": "mirror#callers"}}
_KEPT_S: Final = 86_400
_NEWER: Final = "attribute_not_exists(version) OR version <= :version"
_REFUSED: Final = "ConditionalCheckFailedException"


class DynamoDbMirror:
    """Items `caller#<id>` {root}, `door#maintenance` {message}, and `mirror#callers` while they are not lost.

    A blocked caller has {blocked} in each of its items `door#<service>#<bucket>#<id>`, which count its
    requests too: one read or write of such an item is all that a request costs.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb")

    def exists(self) -> bool:
        """Look for the item that nothing else writes."""
        try:
            found = self._dynamodb.get_item(TableName=self._table, Key=_SENTINEL)
        except (BotoCoreError, ClientError) as error:
            raise _unavailable() from error
        return "Item" in found

    def begin(self) -> None:
        """Write that item."""
        self._update(_SENTINEL, {"begun": self._now()})

    def put(self, caller: CallerRow) -> None:
        """Copy the root; a block and its end reach every item of the caller."""
        self._update(_key(f"caller#{caller.caller_id}"), {"root": {"S": caller.root}}, caller.version)
        for key in doors(caller.caller_id):
            if caller.blocked_reason is not None:
                blocked = {"blocked": {"S": caller.blocked_reason}}
                self._update(key, blocked, caller.version, remove="expires_at")
            elif caller.unblocked:
                self._update(key, {"expires_at": self._now(_KEPT_S)}, caller.version, remove="blocked")

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Write the message, or take it away."""
        key = _key("door#maintenance")
        if maintenance.message is None:
            self._update(key, {}, maintenance.version, remove="message")
        else:
            self._update(key, {"message": {"S": maintenance.message}}, maintenance.version)

    def _update(
        self,
        key: dict[str, Any],
        values: dict[str, dict[str, str]],
        version: int | None = None,
        *,
        remove: str | None = None,
    ) -> None:
        """Write attributes and remove one, unless the item has a later version."""
        if version is not None:
            values = {**values, "version": {"N": str(version)}}
        removal = f"REMOVE {remove} " if remove else ""
        change = f"{removal}SET {', '.join(f'{name} = :{name}' for name in values)}"
        only_if = {"ConditionExpression": _NEWER} if version is not None else {}
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression=change,
                ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
                **only_if,
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != _REFUSED:
                raise _unavailable() from error
        except BotoCoreError as error:
            raise _unavailable() from error

    def _now(self, later_s: int = 0) -> dict[str, str]:
        return {"N": str(int(self._clock.now().timestamp()) + later_s)}


def doors(caller_id: str) -> Iterator[dict[str, Any]]:
    """Yield the keys of the items in which a caller's requests are counted."""
    for service in _SERVICES:
        for bucket in BUCKETS:
            yield _key(f"door#{service}#{bucket}#{caller_id}")


def _key(text: str) -> dict[str, Any]:
    return {"pk": {"S": text}}


def _unavailable() -> TransientError:
    return TransientError(ErrorCode.DATABASE_UNAVAILABLE, "The state table cannot be written.")
