"""Validation of an embeddings answer, which is untrusted input."""

from __future__ import annotations

import binascii
import math
import sys
from array import array
from base64 import b64decode
from typing import Any

from pydantic_core import from_json

from indexmill.contracts.errors import ErrorCode, IndexmillError
from indexmill.embedding.classify import failure
from indexmill.embedding.ports import Vector


def read_vectors(body: bytes, count: int, dimension: int) -> list[Vector]:
    """Return `count` vectors in the order of the request.

    Raises TransientError: embedding_bad_response (not the protocol), embedding_incomplete (not one vector per
    text), embedding_invalid (NaN, infinite or zero); PermanentError(dimension_mismatch).
    """
    by_index: dict[int, Any] = {}
    items = _items(body)
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if type(index) is not int:
            raise _unreadable()
        by_index[index] = item.get("embedding")
    if len(items) != count or by_index.keys() != set(range(count)):
        raise failure(
            ErrorCode.EMBEDDING_INCOMPLETE,
            f"The embedding endpoint sent {len(items)} vectors for {count} texts.",
        )
    return [_checked(_vector(by_index[index]), dimension) for index in range(count)]


def _items(body: bytes) -> list[Any]:
    try:
        answer = from_json(body)
    except ValueError as error:
        raise _unreadable() from error
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise _unreadable()
    return items


def _vector(value: object) -> array[float]:
    """Read base64 of little-endian float32, or a list of numbers from servers that know no other form."""
    try:
        if isinstance(value, list):
            return array("f", value)
        vector = array("f")
        vector.frombytes(b64decode(value, validate=True))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise _unreadable() from error
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def _checked(vector: array[float], dimension: int) -> Vector:
    if len(vector) != dimension:
        raise failure(
            ErrorCode.DIMENSION_MISMATCH,
            f"The model gives {len(vector)} dimensions, {dimension} are configured.",
        )
    # One NaN or infinity anywhere makes the sum one; a sum of finite float32 numbers always fits a double.
    if not math.isfinite(sum(vector)) or not any(vector):
        raise failure(ErrorCode.EMBEDDING_INVALID)
    return vector


def _unreadable() -> IndexmillError:
    return failure(ErrorCode.EMBEDDING_BAD_RESPONSE)
