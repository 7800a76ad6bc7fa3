"""Validation of API keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from indexmill.access.ports import InvalidKey, Membership
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext, key_hash
from indexmill.platform.time.clock import Clock

_MAX_KEY: Final = 256
_NEGATIVE_TTL_S: Final = 10.0
_MOST_REMEMBERED: Final = 10_000
_TYPES: Final = ("user", "service", "unknown")


@dataclass(slots=True)
class ValidateApiKey:
    """Asks Membership, and remembers refusals for a few seconds.

    Accepted keys are remembered by the gateway's authorizer cache alone, so that a revoked key is out within
    its 60 seconds.
    """

    membership: Membership
    clock: Clock
    internal_key_hashes: Collection[str] = ()
    _refused: dict[str, float] = field(default_factory=dict)

    def __call__(self, api_key: str) -> CallerContext:
        """Return the caller of `api_key`.

        Raises InvalidKey, or TransientError(auth_unavailable) when Membership is unavailable or its answer
        invalid.
        """
        key = api_key.strip()
        if not key or len(key) > _MAX_KEY or not key.isascii() or not key.isprintable():
            raise InvalidKey
        hashed = key_hash(key)
        now = self.clock.monotonic()
        if self._refused.get(hashed, 0.0) > now:
            raise InvalidKey
        try:
            claims = self.membership.authenticate(key)
        except InvalidKey:
            self._remember(hashed, now)
            raise
        return build_context(hashed, claims, internal=hashed in self.internal_key_hashes)

    def _remember(self, hashed: str, now: float) -> None:
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused = {key: until for key, until in self._refused.items() if until > now}
        if len(self._refused) < _MOST_REMEMBERED:
            self._refused[hashed] = now + _NEGATIVE_TTL_S


def build_context(hashed: str, claims: dict[str, Any], *, internal: bool) -> CallerContext:
    """Map Membership's claims; unknown ones are kept aside, wrong types are an outage of Membership.

    Raises TransientError(auth_unavailable).
    """
    caller_id = claims.get("caller_id") or hashed
    caller_type = claims.get("caller_type", "unknown")
    tier = claims.get("tier")
    scopes = claims.get("scopes", [])
    sound = (
        isinstance(caller_id, str)
        and caller_id.isprintable()
        and len(caller_id) <= _MAX_KEY
        and caller_type in _TYPES
        and (tier is None or isinstance(tier, str))
        and isinstance(scopes, list)
        and all(isinstance(scope, str) for scope in scopes)
    )
    if not sound:
        raise TransientError(ErrorCode.AUTH_UNAVAILABLE, "Membership gave an unreadable answer.")
    return CallerContext(caller_id, caller_type, tier, tuple(scopes), internal, claims)
