"""Shared by all operations of the local Lambda API: responses, errors, pages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web

T = TypeVar("T")


class OperationError(Exception):
    """Raised to end an operation with an error; `code` is the exception that an AWS SDK raises for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self) -> web.Response:
        """Return the error as AWS sends it."""
        return error_response(self.status, self.code, str(self))


def invalid(message: str) -> OperationError:
    """Return the error for a parameter's value that is not accepted."""
    return OperationError(400, "InvalidParameterValueException", message)


def json_response(content: Mapping[str, Any], status: int = 200) -> web.Response:
    """Return a result as JSON."""
    headers = {"x-amzn-RequestId": str(uuid.uuid4())}
    return web.Response(
        text=json.dumps(content), status=status, headers=headers, content_type="application/json"
    )


def error_response(
    status: int, code: str, message: str, more: Mapping[str, str] | None = None
) -> web.Response:
    """Return an error as JSON, with its code in the header that SDKs read."""
    kind = "User" if status < 500 else "Service"
    response = json_response({"Type": kind, "Message": message, **(more or {})}, status)
    response.headers["x-amzn-ErrorType"] = code
    return response


def page(items: Sequence[T], query: Mapping[str, str], most: int) -> tuple[Sequence[T], dict[str, str]]:
    """Return the part of `items` that the query asks for, and where the next one begins if there is one.

    Raises OperationError for an unknown marker, or a page size that is no number from 1 to 10,000.
    """
    marker, size = query.get("Marker") or "0", query.get("MaxItems") or str(most)
    if not marker.isdecimal():
        raise invalid("Invalid value for Marker.")
    if not size.isdecimal() or not 1 <= int(size) <= 10_000:
        raise OperationError(
            400, "ValidationException", f"MaxItems must be a number from 1 to 10000, not {size}"
        )
    start = int(marker)
    end = start + min(int(size), most)
    return items[start:end], {"NextMarker": str(end)} if end < len(items) else {}
