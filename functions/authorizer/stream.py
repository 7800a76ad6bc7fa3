"""REQUEST authorizer of a job's stream."""

from __future__ import annotations

from typing import Any

from indexmill.access.settings import StreamAuthorizerSettings
from indexmill.access.wiring import build_stream_authorizer

_authorize = build_stream_authorizer(StreamAuthorizerSettings.from_environment())


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Return the policy and the caller for the event's X-API-Key or token."""
    return _authorize(event)
