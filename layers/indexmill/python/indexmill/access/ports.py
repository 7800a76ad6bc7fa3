"""Port of Access: the Membership service."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Protocol

from indexmill.contracts.errors import ErrorCode, TransientError

AuthStyle = Literal["body", "header", "both"]
"""Where Membership reads the key: `{"api_key": …}` in the body, the header `X-API-Key`, or either."""


class InvalidKey(Exception):
    """Membership does not know this key."""


class UnexpectedStatus(TransientError):
    """Membership answers with a status that tells nothing about a key: 429, or its URL is wrong."""

    def __init__(self, status: int) -> None:
        """`status` is Membership's."""
        super().__init__(ErrorCode.AUTH_UNAVAILABLE, "Keys cannot be checked right now.", retry_after=5)
        self.status = status


class UnreadableClaims(TransientError):
    """Membership calls a key valid, and what it says of the caller has a wrong type."""

    def __init__(self, claims: Collection[str]) -> None:
        """`claims` are the names of those that are wrong; their values are not part of the error."""
        super().__init__(ErrorCode.AUTH_UNAVAILABLE, "Keys cannot be checked right now.", retry_after=5)
        self.claims = sorted(claims)


class Membership(Protocol):
    """Knows which keys are valid."""

    def authenticate(self, api_key: str) -> dict[str, Any]:
        """Return the key's claims, {} while Membership tells none.

        Raises InvalidKey, or TransientError(auth_unavailable) when Membership cannot be asked:
        UnexpectedStatus when that is so for this key only.
        """
        ...
