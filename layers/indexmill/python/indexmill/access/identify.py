"""Identification of callers: a key's claims at Membership, checked, and the root of the caller's ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.identity import CALLER_ID, CallerContext, key_hash
from indexmill.platform.aws.clients import QUICK
from indexmill.platform.aws.state_table import StateTable, StoreUnavailable
from indexmill.platform.limits.policy import UnreadableLimits, claimed
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock, SystemClock

_MOST_REMEMBERED: Final = 10_000
_MAX_KEY: Final = 256
_NEGATIVE_TTL_S: Final = 10.0


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
        tuple(known.scopes) if "scopes" in known.model_fields_set else None,
        internal,
        claims,
        key_id=hashed,
    )


class Roots:
    """Items "caller#<id>" {root} of the state table: the sweeper's copy of the table `callers`."""

    def __init__(self, table: str, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, SystemClock(), dynamodb, limits=QUICK)

    def find(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the root of each id that is known, by one request. Raises StoreUnavailable."""
        found = self._table.read([f"caller#{each}" for each in ids], consistent=False)
        roots = {key.removeprefix("caller#"): item.get("root") for key, item in found.items()}
        return {each: str(root) for each, root in roots.items() if root is not None}


@dataclass(slots=True)
class Identify:
    """Validates a key and replaces the caller's id by its root.

    An id of Membership's that is not known yet belongs to the caller that was known by the key's hash: so
    jobs and corpora stay when Membership begins to report ids. The Orchestrator records it.
    """

    validate: Callable[[str], CallerContext]
    roots: Roots
    observability: Observability
    _last: dict[str, str] = field(default_factory=dict)
    """Roots that this environment knew last, by id."""

    def __call__(self, api_key: str) -> CallerContext:
        """Return the caller of `api_key`. Raises what `validate` raises, and nothing for the state table."""
        ctx = self.validate(api_key)
        root = self._root(ctx)
        return ctx if root == ctx.caller_id else replace(ctx, caller_id=root, alias=ctx.caller_id)

    def _root(self, ctx: CallerContext) -> str:
        ids = list(dict.fromkeys((ctx.caller_id, ctx.key_id)))
        try:
            known = self.roots.find(ids)
        except StoreUnavailable:
            # No caller is refused for that: most callers have one id only.
            self.observability.count("caller_roots_unavailable_total")
            return self._last.get(ctx.caller_id, ctx.caller_id)
        root = next((known[each] for each in ids if each in known), ctx.caller_id)
        if len(self._last) >= _MOST_REMEMBERED:
            self._last.clear()
        self._last[ctx.caller_id] = root
        return root
