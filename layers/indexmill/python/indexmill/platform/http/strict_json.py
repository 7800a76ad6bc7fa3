"""JSON as the API accepts it: UTF-8, no duplicate keys, no NaN, no character that a store cannot keep."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from indexmill.contracts.errors import CallerError, ErrorCode

_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_MAX_DIGITS = 400


def loads(body: bytes) -> Any:
    """Parse a request body.

    Raises CallerError: malformed_json, invalid_encoding, or validation_error for NUL and lone surrogates.
    """
    if not body.strip():
        raise CallerError(ErrorCode.MALFORMED_JSON, "The request has no body; send a JSON object.")
    if body.startswith(_BOMS) or b"\0" in body:
        raise CallerError(
            ErrorCode.INVALID_ENCODING, "The body must be JSON in UTF-8 without a byte order mark."
        )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise CallerError(ErrorCode.INVALID_ENCODING, "The body is not valid UTF-8.") from error
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_int, parse_float=_float
        )
    except (ValueError, RecursionError) as error:
        raise CallerError(ErrorCode.MALFORMED_JSON, "The body is not valid JSON.") from error
    # Only an escape can smuggle in what the decoder above refuses.
    if "\\u" in text:
        _check_text(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("number too long")
    return int(text)


def _float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_DIGITS else float("inf")
    if value in (float("inf"), float("-inf")):
        raise ValueError("number too large")
    return value


def _check_text(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in item):
            raise CallerError(
                ErrorCode.VALIDATION_ERROR, "Text must not contain NUL or unpaired surrogates.", field="body"
            )
