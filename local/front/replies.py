"""Parsing of a function's response to a proxy event, as strict as API Gateway's."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KEYS = frozenset({"statusCode", "headers", "multiValueHeaders", "body", "isBase64Encoded"})
_DROPPED = frozenset({"keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade"})
_REMAPPED = frozenset(
    {"authorization", "connection", "content-length", "content-md5", "date", "host", "max-forwards"}
    | {"server", "www-authenticate"}
)
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


class MalformedReplyError(ValueError):
    """Raised for what API Gateway calls a malformed Lambda proxy response."""


@dataclass(frozen=True, slots=True)
class Reply:
    """HTTP response, before the gateway adds its own headers."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def read_reply(payload: bytes) -> Reply:
    """Read the function's JSON. Raises MalformedReplyError with the reason.

    Headers that API Gateway reserves are renamed as there (`x-amzn-Remapped-<name>`).
    """
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise MalformedReplyError("the answer is not JSON") from error
    if not isinstance(document, dict):
        raise MalformedReplyError("the answer is not an object")
    if unknown := document.keys() - _KEYS:
        raise MalformedReplyError(f"unknown key {min(unknown)!r}")
    return Reply(_status(document.get("statusCode")), _headers(document), _body(document))


def _status(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 200 <= value <= 599:
        raise MalformedReplyError("statusCode is missing or no HTTP status")
    return value


def _body(document: Mapping[str, Any]) -> bytes:
    body = document.get("body")
    encoded = document.get("isBase64Encoded") or False
    if body is None:
        return b""
    if not isinstance(body, str) or not isinstance(encoded, bool):
        raise MalformedReplyError("body is not a string, or isBase64Encoded is not a boolean")
    try:
        return base64.b64decode(body, validate=True) if encoded else body.encode("utf-8")
    except (binascii.Error, UnicodeEncodeError) as error:
        raise MalformedReplyError("body cannot be decoded") from error


def _headers(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return `headers` merged into `multiValueHeaders`; a pair that is in both is sent once."""
    single, multi = (_object(document.get(key)) for key in ("headers", "multiValueHeaders"))
    pairs: list[tuple[str, str]] = []
    for name, values in multi.items():
        if not isinstance(values, list):
            raise MalformedReplyError(f"multiValueHeaders {name!r} is not a list")
        pairs.extend(_pair(name, value) for value in values)
    known = {(name.lower(), value) for name, value in pairs}
    for name, value in single.items():
        pair = _pair(name, value)
        if (pair[0].lower(), pair[1]) not in known:
            pairs.append(pair)
    return [(_outgoing(name), value) for name, value in pairs if name.lower() not in _DROPPED]


def _object(value: object) -> dict[str, Any]:
    """Return an object: empty when absent; an empty list is not one, as in API Gateway."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedReplyError("headers is not an object")
    return value


def _pair(name: str, value: object) -> tuple[str, str]:
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | int | float):
        text = str(value)
    elif value is None:
        text = ""
    else:
        raise MalformedReplyError(f"header {name!r} is neither text nor a number")
    if not _NAME.fullmatch(name) or _BAD_VALUE.search(text):
        raise MalformedReplyError(f"header {name!r} cannot be sent")
    return name, text


def _outgoing(name: str) -> str:
    return f"x-amzn-Remapped-{name}" if name.lower() in _REMAPPED else name
