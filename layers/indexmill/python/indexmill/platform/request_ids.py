"""The id of one request, everywhere the same: in its answer, its error, its messages and its logs."""

from __future__ import annotations

import re
from typing import Any

_SOUND = re.compile(r"[A-Za-z0-9-]{1,64}")


def request_id(event: dict[str, Any]) -> str:
    """Return the caller's X-Request-Id when it is a sound one, else the gateway's own; "" for neither."""
    headers = event.get("headers") or {}
    given = next((str(value) for name, value in headers.items() if name.lower() == "x-request-id"), "")
    if _SOUND.fullmatch(given):
        return given
    return str(event.get("requestContext", {}).get("requestId", ""))
