"""A client of DynamoDB in memory: the operations and expressions that the owners of the state table use."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from email.utils import format_datetime
from typing import Any, Final

from botocore.exceptions import ClientError, EndpointConnectionError

from indexmill.platform.time import Clock

REFUSED: Final = "ConditionalCheckFailedException"
_CLAUSES: Final = re.compile(r"\b(ADD|SET|REMOVE|DELETE) (.*?)(?= (?:ADD|SET|REMOVE|DELETE) |$)")
_SET: Final = re.compile(r"(\w+) = (if_not_exists\(\w+, )?(:\w+)")
_BETWEEN: Final = re.compile(r"(\w+) BETWEEN (:\w+) AND (:\w+)")
_TOKENS: Final = re.compile(r":?\w+|<=|>=|[<>=(),]")
_PYTHON: Final = {"AND": "and", "OR": "or", "=": "=="}


class MemoryDynamoDb:
    """Items by their `pk`, in one table. `requests` are the operations and parameters of all calls.

    `unavailable` makes it unreachable; `failing` is the code of an error that every call answers with. With a
    `clock` its answers tell the time, to the second.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock
        self.items: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.unavailable = False
        self.failing = ""
        self._lock = threading.Lock()

    def get_item(self, **asked: Any) -> dict[str, Any]:
        with self._asked("GetItem", asked):
            item = self.items.get(asked["Key"]["pk"]["S"])
            return self._answer(Item=dict(item)) if item is not None else self._answer()

    def batch_get_item(self, **asked: Any) -> dict[str, Any]:
        with self._asked("BatchGetItem", asked):
            ((table, keys),) = asked["RequestItems"].items()
            found = [self.items.get(key["pk"]["S"]) for key in keys["Keys"]]
            return self._answer(Responses={table: [dict(item) for item in found if item is not None]})

    def put_item(self, **asked: Any) -> dict[str, Any]:
        with self._asked("PutItem", asked):
            key = asked["Item"]["pk"]["S"]
            self._check("PutItem", self.items.get(key), asked)
            self.items[key] = dict(asked["Item"])
            return self._answer()

    def update_item(self, **asked: Any) -> dict[str, Any]:
        with self._asked("UpdateItem", asked):
            key = asked["Key"]["pk"]["S"]
            old = self.items.get(key)
            self._check("UpdateItem", old, asked)
            new = {**asked["Key"], **(old or {})}
            for clause, text in _CLAUSES.findall(asked["UpdateExpression"]):
                _UPDATES[clause](new, text, asked.get("ExpressionAttributeValues", {}))
            self.items[key] = new
            returned = {"ALL_OLD": old, "ALL_NEW": new}.get(asked.get("ReturnValues", ""))
            return self._answer(Attributes=dict(returned)) if returned else self._answer()

    def batch_write_item(self, **asked: Any) -> dict[str, Any]:
        with self._asked("BatchWriteItem", asked):
            ((_, writes),) = asked["RequestItems"].items()
            for each in writes:
                item = each["PutRequest"]["Item"]
                self.items[item["pk"]["S"]] = dict(item)
            return self._answer()

    def count(self, *operations: str) -> int:
        """Return how many calls of these operations there were; of all without any."""
        return sum(not operations or name in operations for name, _ in self.requests)

    def _answer(self, **answer: Any) -> dict[str, Any]:
        if self.clock is not None:
            date = format_datetime(self.clock.now(), usegmt=True)
            answer["ResponseMetadata"] = {"HTTPHeaders": {"date": date}}
        return answer

    def _asked(self, operation: str, asked: dict[str, Any]) -> threading.Lock:
        self.requests.append((operation, asked))
        if self.unavailable:
            raise EndpointConnectionError(endpoint_url="http://nowhere")
        if self.failing:
            raise ClientError({"Error": {"Code": self.failing, "Message": ""}}, operation)
        return self._lock

    def _check(self, operation: str, item: dict[str, Any] | None, asked: Mapping[str, Any]) -> None:
        values = asked.get("ExpressionAttributeValues", {})
        if "ConditionExpression" in asked and not holds(asked["ConditionExpression"], item or {}, values):
            answer: Any = self._answer(Error={"Code": REFUSED, "Message": "The conditional request failed"})
            if item and asked.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
                answer["Item"] = dict(item)
            raise ClientError(answer, operation)


def holds(condition: str, item: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether a condition holds; nothing compares with an attribute that is not there."""
    known = {name: _plain(value) for name, value in (*item.items(), *values.items())}
    words = []
    for word in _TOKENS.findall(_BETWEEN.sub(r"(\2 <= \1 AND \1 <= \3)", condition)):
        if word in _PYTHON:
            words.append(_PYTHON[word])
        elif word in ("attribute_not_exists", "size") or not (word[0] == ":" or word[0].isalpha()):
            words.append(word)
        elif words[-2:] == ["attribute_not_exists", "("]:
            words.append(repr(word))
        else:
            words.append(f"known.get({word!r}, nan)")
    functions = {"attribute_not_exists": lambda name: name not in known, "size": len}
    return bool(eval(" ".join(words), {**functions, "known": known, "nan": math.nan}))  # noqa: S307


def _plain(value: Mapping[str, Any]) -> Any:
    ((kind, raw),) = value.items()
    return float(raw) if kind == "N" else raw


def _add(item: dict[str, Any], text: str, values: Mapping[str, Any]) -> None:
    for name, value in (each.split(" ") for each in text.split(", ")):
        ((kind, raw),) = values[value].items()
        if kind == "SS":
            item[name] = {"SS": sorted({*item.get(name, {"SS": []})["SS"], *raw})}
        else:
            item[name] = {"N": str(int(item.get(name, {"N": "0"})["N"]) + int(raw))}


def _set(item: dict[str, Any], text: str, values: Mapping[str, Any]) -> None:
    for name, only_new, value in _SET.findall(text):
        if not (only_new and name in item):
            item[name] = values[value]


def _remove(item: dict[str, Any], text: str, _values: Mapping[str, Any]) -> None:
    for name in text.split(", "):
        item.pop(name, None)


def _delete(item: dict[str, Any], text: str, values: Mapping[str, Any]) -> None:
    name, value = text.split(" ")
    left = sorted(set(item.get(name, {"SS": []})["SS"]) - set(values[value]["SS"]))
    item.pop(name, None)
    if left:
        item[name] = {"SS": left}


_UPDATES: Final[Mapping[str, Callable[[dict[str, Any], str, Mapping[str, Any]], None]]] = {
    "ADD": _add,
    "SET": _set,
    "REMOVE": _remove,
    "DELETE": _delete,
}
