"""Validation of API keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexmill.access.ports import InvalidKey, Membership, UnreadableClaims
from indexmill.contracts.identity import CALLER_ID, CallerContext, key_hash
from indexmill.platform.limits.policy import UnreadableLimits, claimed
from indexmill.platform.time import Clock

_MAX_KEY: Final = 256
_NEGATIVE_TTL_S: Final = 10.0
_MOST_REMEMBERED: Final = 10_000


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


class Claims(BaseModel):
    """Membership's answer about a valid key; claims that are not here are kept aside, unread."""

    model_config = ConfigDict(strict=True, extra="allow")

    caller_id: str | None = Field(default=None, pattern=CALLER_ID)
    caller_type: Literal["user", "service", "unknown"] = "unknown"
    tier: str | None = Field(default=None, max_length=100)
    scopes: list[Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,200}$")]] = Field(default=[], max_length=100)


def build_context(hashed: str, claims: dict[str, Any], *, internal: bool) -> CallerContext:
    """Map Membership's claims. Raises UnreadableClaims for wrong types: that is an outage of Membership."""
    try:
        known = Claims.model_validate(claims)
        claimed(claims.get("rate_limits"))
    except ValidationError as error:
        raise UnreadableClaims({str(each["loc"][0]) for each in error.errors()}) from error
    except UnreadableLimits as error:
        raise UnreadableClaims({"rate_limits"}) from error
    return CallerContext(
        known.caller_id or hashed,
        known.caller_type,
        known.tier,
        tuple(known.scopes),
        internal,
        claims,
        key_id=hashed,
    )
