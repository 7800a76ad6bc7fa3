"""Pages of lists: cursors, which say where the next page begins, and the sizes of pages."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from indexmill.contracts.errors import CallerError, ErrorCode

MAX_LIMIT: Final = 200
"""Items of a page."""
MAX_CURSOR_LENGTH: Final = 300
_MAX_DIGITS: Final = 3


def page_size(text: str) -> int:
    """Read the size of a page by ourselves: FastAPI would take "1_0" and " 10 " for ten.

    Raises CallerError(validation_error).
    """
    decimal = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    if not decimal or not 1 <= int(text) <= MAX_LIMIT:
        raise CallerError(
            ErrorCode.VALIDATION_ERROR, f"limit is a number from 1 to {MAX_LIMIT}.", field="query.limit"
        )
    return int(text)


def cursor_of(values: Sequence[Any]) -> str:
    """Return the cursor behind the item with these values of the list's order, which JSON can hold."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


def values_of(cursor: str) -> list[Any]:
    """Return the values of a cursor; raises CallerError(validation_error) for another text."""
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor.encode()), parse_constant=_refused)
    except (ValueError, binascii.Error) as error:
        raise foreign_cursor() from error
    if not isinstance(values, list) or not all(
        each.isprintable() for each in values if isinstance(each, str)
    ):
        raise foreign_cursor()
    return values


def _refused(constant: str) -> NoReturn:
    """Refuse numbers that JSON does not have."""
    raise ValueError(constant)


def foreign_cursor() -> CallerError:
    """Return the error for a cursor that no answer of this list had."""
    return CallerError(ErrorCode.VALIDATION_ERROR, "This cursor is not one of ours.", field="query.cursor")
