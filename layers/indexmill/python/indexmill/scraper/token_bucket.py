"""State of a site that all workers share: its token bucket, its failures, and its robots.txt.

A site has a bucket of `burst` tokens, which refills by one every `interval_s`; a request takes one. A message
that finds none gets the next token reserved that is not reserved yet, and returns when it is due: others
leave that token. Tokens are counted by requests that were sent, so a message that comes late delays
nothing but itself, and no window sees more than burst + time / interval requests.

A site that fails three times in a row is left alone for a while, then asked by one request at a time until it
answers.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from indexmill.platform.aws.clients import CallLimits
from indexmill.platform.aws.state_table import ConditionFailed, Item, StateTable, StoreClock, StoreUnavailable
from indexmill.platform.security.urls import DomainRate
from indexmill.platform.time import Clock

FAILURES: Final = 3
"""Failures in a row after which a site is left alone."""
_PAUSE_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 300.0
_LONGEST_ASKED_S: Final = 3_600.0
"""The longest Retry-After of a site that counts for its other pages too."""
_PROMISES: Final = 100
"""More would make the state large; for a later message no token is reserved."""
_KEPT_S: Final = 60.0
"""After this time a reserved token is free again: its message died, or waits for a free worker."""
_IN_FLIGHT_S: Final = 2.0
"""Wait when all requests that may be in flight are."""

_LIMITS: Final = CallLimits(connect_s=0.5, answer_s=1.0, tries=1)
_STORED_S: Final = 86_400
"""After a day without a request nothing of a state matters."""
_MAX_ITEM_BYTES: Final = 300_000
_MAX_RULES_BYTES: Final = 2_000_000
_LOG: Final = logging.getLogger(__name__)

Held = Literal["domain_busy", "domain_failing"]


@dataclass(frozen=True, slots=True)
class HostState:
    """State of a site; times are seconds since the epoch."""

    full_at: float = 0.0
    """Time at which the bucket is full, if nothing else is sent."""
    promised: Mapping[str, float] = field(default_factory=dict)
    """Time at which a reserved token is due, by the key of its message."""
    running: Mapping[str, float] = field(default_factory=dict)
    """Until when at most a request is in flight, by its id."""
    failures: int = 0
    """In a row."""
    open_until: float = 0.0
    cause: str = ""
    """Code of the last failure; "" while it answers."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request that needs a token."""

    id: str
    until: float
    """Latest time of its end."""
    key: str | None = None
    """Key of a message that can return for a reserved token; None for a caller that waits for its answer."""
    delay_s: float = 0.0
    """Pause that the site wants between two requests (Crawl-delay)."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is no longer in flight, or a reserved token that is not used."""

    id: str
    """Of the request, or the key of the message that the token was reserved for."""
    failed: bool | None
    """None: nothing was asked of the site, as where its name does not exist."""
    pause_s: int | None = None
    """Pause that the site asked for (Retry-After)."""
    code: str = ""
    """Of the failure."""
    next_at: float = 0.0
    """No request before, where a site gets one at a time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """No request now."""

    wait_s: float
    reason: Held
    cause: str = ""
    """Code of the last failure of a site that is left alone."""


def spacing(rate: DomainRate, delay_s: float) -> tuple[float, int]:
    """Return the seconds between two requests, and how many may be sent at once."""
    return max(rate.interval_s, delay_s), 1 if delay_s > rate.interval_s else rate.burst


def take(
    state: HostState, now: float, rate: DomainRate, request: TokenRequest
) -> tuple[HostState, Refusal | None]:
    """Return the state after the request took a token, or after one was reserved for it."""
    interval_s, burst = spacing(rate, request.delay_s)
    state = replace(
        state,
        promised={key: at for key, at in state.promised.items() if at + _KEPT_S > now},
        running={each: until for each, until in state.running.items() if until > now},
    )
    others = dict(state.promised)
    promised = others.pop(request.key, math.inf) if request.key is not None else math.inf
    ahead = 0 if promised <= now else sum(at <= now for at in others.values())
    probing = state.failures >= FAILURES
    tokens = math.floor(burst - max(0.0, state.full_at - now) / interval_s + 1e-6)
    if now < state.open_until or (probing and state.running):
        refusal = Refusal(0.0, "domain_failing", state.cause)
    elif len(state.running) >= burst or tokens <= ahead:
        refusal = Refusal(0.0, "domain_busy")
    else:
        full_at = max(state.full_at, now) + interval_s
        running = {**state.running, request.id: request.until}
        return replace(state, full_at=full_at, promised=others, running=running), None
    due = max(max(state.full_at, now) + (len(others) + 1 - burst) * interval_s, now)
    if now < promised < due:
        due = promised
    if state.open_until > now:
        due = max(due, state.open_until + len(others) * interval_s)
    elif probing or len(state.running) >= burst:
        due = max(due, now + _IN_FLIGHT_S)
    if request.key is not None and len(others) < _PROMISES:
        state = replace(state, promised={**others, request.key: due})
    return state, replace(refusal, wait_s=due - now)


def finish(state: HostState, now: float, ended: Sequence[Ended]) -> HostState:
    """Return the state without requests that ended, in their order, and with what they say of the site."""
    failures, open_until, cause = state.failures, state.open_until, state.cause
    for each in ended:
        if each.failed is None:
            continue
        failures, cause = (failures + 1, each.code) if each.failed else (0, "")
        if not each.failed:
            open_until = min(open_until, now)
        elif failures >= FAILURES:
            pause_s = min(_PAUSE_S * 2 ** min(failures - FAILURES, 10), _LONGEST_PAUSE_S)
            open_until = max(open_until, now + pause_s)
        if each.failed and each.pause_s:
            open_until = max(open_until, now + min(each.pause_s, _LONGEST_ASKED_S))
    over = {each.id for each in ended}
    full_at = max([state.full_at, *(each.next_at for each in ended)])
    running = {each: until for each, until in state.running.items() if each not in over}
    promised = {key: at for key, at in state.promised.items() if key not in over}
    state = replace(state, running=running, promised=promised, full_at=full_at)
    return replace(state, failures=failures, open_until=open_until, cause=cause)


class HostStates:
    """Items "host#<site>" of the state table: a version, and the state as JSON."""

    def __init__(self, table: str, clock: StoreClock, dynamodb: Any | None = None) -> None:
        """`clock` is corrected by the answers; `dynamodb` is a low-level client, made when it is missing."""
        self._table = StateTable(table, clock, dynamodb, limits=_LIMITS)

    def replace(self, site: str, version: int, new: HostState) -> tuple[int, HostState] | None:
        """Write `new` if the state has this version, 0 for none yet; else return the state and its version.

        A state that was written has the next version. Raises StoreUnavailable.
        """
        item: Item = {
            "version": version + 1,
            "state": _text(new),
            "expires_at": int(self._table.now()) + _STORED_S,
        }
        if new.cause:
            # Not in the state, of which the release before knows every field.
            item["cause"] = new.cause
        try:
            self._table.put(
                f"host#{site}",
                item,
                only_if="version = :known" if version else "attribute_not_exists(pk)",
                values={":known": version} if version else None,
                tells_old=True,
            )
        except ConditionFailed as refused:
            return _known(refused.old)
        return None


def _text(state: HostState) -> str:
    """Return the state as JSON, with times in whole milliseconds."""
    return json.dumps(
        {
            "full_at": round(state.full_at, 3),
            "promised": {key: round(at, 3) for key, at in state.promised.items()},
            "running": {key: round(at, 3) for key, at in state.running.items()},
            "failures": state.failures,
            "open_until": round(state.open_until, 3),
        },
        separators=(",", ":"),
    )


def _known(item: Item | None) -> tuple[int, HostState]:
    """Return version and state; an item that the table has deleted has none."""
    if item is None:
        return 0, HostState()
    try:
        return int(item["version"]), HostState(**json.loads(item["state"]), cause=item.get("cause", ""))
    except (KeyError, TypeError, ValueError) as error:
        # Not written by us.
        raise StoreUnavailable from error


@dataclass(frozen=True, slots=True)
class KnownRobots:
    """State of one origin's robots.txt; times are Unix times."""

    rules: str | None
    """Lines as of `rules_for`; None: it could not be read."""
    fresh_until: float
    """When to ask the site again."""
    kept_until: float
    """Until then the rules serve while the site's robots.txt cannot be read."""


class RobotsCache:
    """Items "robots#<origin>" of the state table with the packed rules, or `unread` where there are none.

    One without `fresh_until`, of a release before, is fresh until it expires. A cache that fails is one that
    forgot: errors are logged and the site is asked again.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb)

    def get(self, origin: str) -> KnownRobots | None:
        """Return what is known; it may be no longer fresh."""
        try:
            item = self._table.get(f"robots#{origin}")
            if item is None:
                return None
            end = float(item["expires_at"])
            rules = None if item.get("unread") else _unpacked(item["rules"])
            return KnownRobots(rules, float(item.get("fresh_until", end)), end)
        except (StoreUnavailable, KeyError, ValueError, zlib.error):
            _LOG.warning("robots cache cannot be read", exc_info=True)
            return None

    def put(self, origin: str, known: KnownRobots) -> None:
        """Remember until `known.kept_until`, unless it is too large for an item."""
        item: Item = {"fresh_until": int(known.fresh_until), "expires_at": int(known.kept_until)}
        if known.rules is None:
            item["unread"] = True
        else:
            item["rules"] = zlib.compress(known.rules.encode())
            if len(item["rules"]) > _MAX_ITEM_BYTES:
                return
        try:
            self._table.put(f"robots#{origin}", item)
        except StoreUnavailable:
            _LOG.warning("robots cache cannot be written", exc_info=True)


def _unpacked(data: bytes) -> str:
    """Return packed rules. Raises ValueError for a part of them, which would allow too much."""
    unpacker = zlib.decompressobj()
    rules = unpacker.decompress(data, _MAX_RULES_BYTES)
    if not unpacker.eof:
        raise ValueError("cut off")
    return rules.decode()
