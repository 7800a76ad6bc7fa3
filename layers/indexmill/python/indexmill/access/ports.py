"""Port of Access: the Membership service."""

from __future__ import annotations

from typing import Any, Protocol


class InvalidKey(Exception):
    """Membership does not know this key."""


class Membership(Protocol):
    """Knows which keys are valid."""

    def authenticate(self, api_key: str) -> dict[str, Any]:
        """Return the key's claims, {} while Membership tells none.

        Raises InvalidKey, or TransientError(auth_unavailable) when Membership cannot be asked.
        """
        ...
