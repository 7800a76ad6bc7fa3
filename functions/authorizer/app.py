"""REQUEST authorizer of the REST API."""

from __future__ import annotations

from typing import Any

from indexmill.access.settings import AuthorizerSettings
from indexmill.access.wiring import build_authorizer

_authorize = build_authorizer(AuthorizerSettings.from_environment())


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Return the policy and the caller for the event's X-API-Key."""
    return _authorize(event)
