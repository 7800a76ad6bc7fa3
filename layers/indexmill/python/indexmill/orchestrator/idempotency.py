"""A submit that is sent twice under one key is one submit."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from pydantic import BaseModel

from indexmill.contracts.errors import CallerError, ErrorCode

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")


def check_key(key: str) -> str:
    """Return `key` when it can be one: 1 to 255 visible ASCII characters.

    Raises CallerError(invalid_header).
    """
    if _KEY.fullmatch(key) is None:
        raise CallerError(
            ErrorCode.INVALID_HEADER,
            "Idempotency-Key has 1 to 255 visible ASCII characters.",
            field="header.Idempotency-Key",
        )
    return key


def body_digest(request: BaseModel) -> str:
    """Return the digest of what a request says, however it was written."""
    return hashlib.sha256(request.model_dump_json().encode()).hexdigest()


def idempotency_conflict() -> CallerError:
    """Return the refusal of a key that was used for another request."""
    return CallerError(
        ErrorCode.IDEMPOTENCY_CONFLICT,
        "This Idempotency-Key was used for another request within the last 24 hours.",
        hint="Send the same body, or another key.",
    )
