"""Reading of requests by our own rules: parameters and JSON bodies that break them never reach a route."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from fastapi import Request

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.texts import is_plain

_SOUND_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_MAX_DIGITS: Final = 400
_TOKEN: Final = re.compile(r'("(?:[^"\\]|\\.)*+")(\s*:)?|[{}\[\]]|NaN|-?Infinity|-?[0-9][0-9.eE+-]*')
"""What tells where a JSON text that the parser could read breaks our own rules."""
_MOMENT: Final = "Send a moment in ISO 8601, as 2026-03-01T12:00:00Z."
_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "This is required.",
    "extra_forbidden": "There is no such field.",
    "string_type": "Send a string.",
    "string_too_short": "Send at least {min_length} characters.",
    "string_too_long": "Send at most {max_length} characters.",
    "string_pattern_mismatch": "This must match {pattern}",
    "too_short": "Send at least {min_length} items.",
    "too_long": "Send at most {max_length} items.",
    "greater_than": "Send a number above {gt}.",
    "greater_than_equal": "Send a number of at least {ge}.",
    "less_than_equal": "Send a number of at most {le}.",
    **dict.fromkeys(("literal_error", "enum"), "Send {expected}."),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "Send an integer."),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "Send a number."),
    **dict.fromkeys(("bool_type", "bool_parsing"), "Send true or false."),
    "list_type": "Send a list.",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "Send a JSON object."),
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing", "datetime_type"), _MOMENT),
    "datetime_object_invalid": _MOMENT,
    "value_error": "{error}",
}
"""Sentences for callers, by the type of pydantic's error, whose own texts speak of Python."""


class StrictRequest(Request):
    """A request whose JSON was already parsed by our own rules."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


def field_name(parts: Iterable[object]) -> str:
    """Return the name of a field for an error; a part of it that a caller made up freely is left out."""
    sound = (str(part) for part in parts)
    return ".".join(part if _SOUND_NAME.fullmatch(part) else "?" for part in sound)[:200]


def sentence(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a field, by one of pydantic's errors; never the value."""
    kind, context, value = problem["type"], problem.get("ctx", {}), problem.get("input")
    if kind in ("string_too_short", "too_short") and context["min_length"] == 1:
        return "This must not be empty."
    # Of a string that another check has read already, pydantic counts items.
    if kind in ("too_long", "too_short") and isinstance(value, str):
        kind = f"string_{kind}"
    found = _SENTENCES.get(kind)
    return str(problem["msg"]) if found is None else found.format_map(context)


def check_parameters(request: Request, query: frozenset[str], headers: frozenset[str]) -> None:
    """Refuse what no route takes; `query` and `headers` are the names that the route declares.

    Raises CallerError: validation_error for an unknown or repeated query parameter, and for a control
    character in the query, the path or one of the headers; invalid_api_key for several keys.
    """
    if _api_keys(request) > 1:
        raise CallerError(ErrorCode.INVALID_API_KEY, "Send exactly one X-API-Key header.")
    if request.scope.get("query_string"):
        _check_query(request, query)
    for name, value in request.path_params.items():
        _check_plain("path", name, str(value))
    # A line end after it does not keep a path from its route.
    _check_plain("path", "", request.scope["path"])
    for name in headers:
        _check_plain("header", name, request.headers.get(name, ""))


def _api_keys(request: Request) -> int:
    # The event knows: on the way here the values of one header were joined into one.
    headers = request.scope.get("aws.event", {}).get("multiValueHeaders") or {}
    return sum(len(values) for name, values in headers.items() if name.lower() == "x-api-key")


def _check_query(request: Request, known: frozenset[str]) -> None:
    pairs = request.query_params.multi_items()
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in known:
            raise _wrong("query", name, "This endpoint has no such parameter.")
        if count > 1:
            raise _wrong("query", name, "Send this parameter once.")
    for name, value in pairs:
        _check_plain("query", name, value)


def _check_plain(place: str, name: str, value: str) -> None:
    if not is_plain(value):
        raise _wrong(place, name, "Control characters are not allowed here.")


def _wrong(place: str, name: str, message: str) -> CallerError:
    field = field_name((place, name) if name else (place,))
    return CallerError(ErrorCode.VALIDATION_ERROR, f"{field}: {message}", field=field)


async def checked_body(request: Request, limit: int) -> bytes:
    """Return the body; raises CallerError for a wrong type or encoding, and for more than `limit` bytes."""
    content_type = request.headers.get("content-type", "").lower()
    media_type, _, parameters = content_type.partition(";")
    if media_type.strip() != "application/json":
        raise CallerError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Send the body as application/json.")
    if "charset" in parameters and "utf-8" not in parameters:
        raise CallerError(ErrorCode.INVALID_ENCODING, "The body must be UTF-8.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise CallerError(ErrorCode.UNSUPPORTED_ENCODING, "Send the body without a content encoding.")
    body = await request.body()
    if len(body) > limit:
        raise CallerError(ErrorCode.PAYLOAD_TOO_LARGE, f"The body may have at most {limit} bytes.")
    return body


def read_json(body: bytes) -> Any:
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
        message = f"The body is not valid JSON: {_broken(text, error)}."
        raise CallerError(ErrorCode.MALFORMED_JSON, message) from error
    # Only an escape can contain characters that the decoder above refuses.
    if "\\u" in text:
        _check_text(value)
    return value


def _broken(text: str, error: ValueError | RecursionError) -> str:
    """Return reason and place of what the parser refused; nothing of the text but a sound key."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        reason, at = error.msg.removesuffix(" at").removesuffix(": ").lower(), error.pos
    else:
        reason, at = _against_our_rules(text)
    line = text.count("\n", 0, at) + 1
    return f"{reason} (line {line}, column {at - text.rfind(chr(10), 0, at)})"


def _against_our_rules(text: str) -> tuple[str, int]:
    """Return what `_unique`, `_no_constant`, `_int` or `_float` refused first, and where."""
    keys: list[set[str]] = []
    for found in _TOKEN.finditer(text):
        token, at = found[0], found.start()
        if token in "{[":
            keys.append(set())
        elif token in "}]":
            keys.pop()
        elif found[2]:
            key = json.loads(found[1])
            if key in keys[-1]:
                return f"the key {field_name((key,))} is there twice", at
            keys[-1].add(key)
        elif token.endswith(("NaN", "Infinity")):
            return f"{token} is no number of JSON", at
        elif not found[1] and (len(token) > _MAX_DIGITS or math.isinf(float(token))):
            return f"the number is too large or has over {_MAX_DIGITS} characters", at
    return "a value breaks a rule", 0


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
