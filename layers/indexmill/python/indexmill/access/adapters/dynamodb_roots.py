"""Roots in the state table: the sweeper's copy of the table `callers`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.access.ports import RootsUnavailable
from indexmill.platform.aws.clients import LazyClient


class DynamoDbRoots:
    """Items `pk` = "caller#<id>" with the attribute `root`."""

    def __init__(self, table: str, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._dynamodb = dynamodb or LazyClient("dynamodb", quick=True)

    def find(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the roots of those that are known, in one call."""
        asked = {self._table: {"Keys": [{"pk": {"S": f"caller#{each}"}} for each in ids]}}
        try:
            answer = self._dynamodb.batch_get_item(RequestItems=asked)
            if answer.get("UnprocessedKeys"):
                raise RootsUnavailable
            items = answer["Responses"].get(self._table, [])
            return {item["pk"]["S"].removeprefix("caller#"): item["root"]["S"] for item in items}
        except (BotoCoreError, ClientError, KeyError) as error:
            raise RootsUnavailable from error
