"""Store of request limits and backpressure, in the state table.

Windows are "door#<service>#<bucket>#<caller>": `n` counts all admitted requests, `s<end>` those of one slot,
by its end in hundredths of a second, hexadecimal. "active#<service>" counts active callers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from indexmill.platform.aws.clients import QUICK, CallLimits
from indexmill.platform.aws.state_table import ConditionFailed, Item, StateTable, StoreClock, StoreUnavailable
from indexmill.platform.limits.window import ACTIVE_S, RequestAdmission, Window
from indexmill.platform.time import Clock

_NOTED_FROM_S: Final = 10.0
"""A queue whose messages are younger has no note of its age."""
_NOTED_EVERY_S: Final = 5.0
NOTE_KNOWN_S: Final = 60.0
"""An older note says nothing: workers renew what is still true. Those of a stage that is switched off receive
nothing, so then the depth alone counts."""
_HIGHER_FOR_S: Final = 15.0
"""A lower age replaces a higher one that was noted so long ago: fair queues deliver young messages too."""
_LOG: Final = logging.getLogger(__name__)
_LIMITS: Final = CallLimits(connect_s=0.3, answer_s=0.5, tries=1)
_QUIET_S: Final = 1.5
"""A store that failed is left alone for so long: its time-outs would be added to every request."""
_MAINTENANCE: Final = "door#maintenance"
_ACTIVE_KEPT_S: Final = 86_400
_NEW_OR_BELOW: Final = (
    "attribute_not_exists(blocked) AND (attribute_not_exists(n) OR (n < ceiling AND most <= :most))"
)
_WITHIN: Final = "attribute_not_exists(blocked) AND n BETWEEN :least AND :last"


@dataclass(frozen=True, slots=True)
class Load:
    """Work that waits: how much, and for how many seconds the oldest of it."""

    depth: int
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Shared:
    """State that concerns every caller of a service."""

    active: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Callers by bucket and by the ten minutes of their last request."""
    maintenance: str | None = None
    """Message to callers during maintenance."""


class LimitStore:
    """Windows of callers, in requests that are few and short. Every call raises StoreUnavailable."""

    def __init__(self, table: str, clock: StoreClock, dynamodb: Any | None = None) -> None:
        """`clock` is corrected by the answers; `dynamodb` is a low-level client, made when it is missing."""
        self._table = StateTable(table, clock, dynamodb, quiet_s=_QUIET_S, limits=_LIMITS)

    @property
    def is_quiet(self) -> bool:
        """Return whether the table failed a moment ago, and is left alone."""
        return self._table.is_quiet

    def admit(self, key: str, admission: RequestAdmission) -> tuple[bool, Window | None]:
        """Count a request by one UpdateItem, if the admission's condition holds.

        Returns whether it was counted, and the window before it, None for none.
        """
        slot = f"s{admission.slot:x}"
        values = {":one": 1, ":most": admission.most, ":end": admission.expires_at}
        if admission.between is None:
            bound = "ceiling = if_not_exists(ceiling, :most), most = if_not_exists(most, :most)"
        else:
            bound = "ceiling = :ceiling, most = :most"
            least, last = admission.between
            values |= {":ceiling": admission.ceiling, ":least": least, ":last": last}
        update = f"ADD n :one, {slot} :one SET {bound}, expires_at = :end"
        if admission.active is not None:
            update += ", seen = :seen"
            values[":seen"] = admission.active
        if admission.drop:
            update += " REMOVE " + _names(admission.drop)
        try:
            before = self._table.update(
                f"door#{key}",
                update,
                values,
                only_if=_WITHIN if admission.between else _NEW_OR_BELOW,
                returns="ALL_OLD",
                tells_old=True,
            )
        except ConditionFailed as refused:
            return False, _window(refused.old)
        return True, _window(before)

    def forget(self, key: str, slots: Sequence[int]) -> None:
        """Remove slots that have left the window."""
        self._table.update(f"door#{key}", "REMOVE " + _names(slots))

    def is_blocked(self, key: str) -> bool:
        """Return whether the caller is blocked; the answer may be a second old."""
        return "blocked" in (self._table.get(f"door#{key}", expired=True) or {})

    def move_active(
        self, service: str, bucket: str, old: int | None, new: int, over: Sequence[int]
    ) -> Mapping[int, int]:
        """Count an active caller in the ten minutes `new`, no longer in `old`, and remove those in `over`.

        Returns the bucket's counters.
        """
        changed, values = f"{bucket}_{new} :one", {":one": 1}
        if old is not None:
            changed += f", {bucket}_{old} :less"
            values[":less"] = -1
        update = f"ADD {changed} SET expires_at = :end"
        values[":end"] = (new + 1) * ACTIVE_S + _ACTIVE_KEPT_S
        if over:
            update += " REMOVE " + ", ".join(f"{bucket}_{slot}" for slot in over)
        found = self._table.update(f"active#{service}", update, values, returns="ALL_NEW")
        return _counters(found or {}).get(bucket, {})

    def shared(self, service: str) -> Shared:
        """Return what concerns every caller, by one request."""
        return self.read((), (service,))[1][service]

    def read(
        self, keys: Sequence[str], services: Sequence[str]
    ) -> tuple[dict[str, Window], dict[str, Shared]]:
        """Return the windows that exist, and what concerns every caller of each service, by one request."""
        asked = [*(f"door#{key}" for key in keys), *(f"active#{each}" for each in services), _MAINTENANCE]
        items = self._table.read(asked, expired=True)
        maintenance = items.get(_MAINTENANCE, {}).get("message")
        windows = {key: _window(items.get(f"door#{key}")) for key in keys}
        return (
            {key: window for key, window in windows.items() if window is not None},
            {each: Shared(_counters(items.get(f"active#{each}", {})), maintenance) for each in services},
        )


class QueueAges:
    """Items "queue#<stage>" of the state table: the age of a queue's oldest message, as receivers see it."""

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb, limits=QUICK)

    def note(self, stage: str, age_s: float) -> None:
        """Note the age, unless a higher one was noted a moment ago."""
        now = self._table.now()
        try:
            self._table.put(
                f"queue#{stage}",
                {"age_s": age_s, "noted_at": now, "expires_at": int(now + 2 * NOTE_KNOWN_S)},
                only_if="attribute_not_exists(pk) OR age_s <= :age OR noted_at < :before",
                values={":age": age_s, ":before": now - _HIGHER_FOR_S},
            )
        except ConditionFailed:
            return
        except StoreUnavailable:
            _LOG.warning("age of the queue cannot be noted", exc_info=True)

    def oldest(self, stage: str) -> float:
        """Return the noted age; 0 for none, for one of more than NOTE_KNOWN_S ago, and when unavailable."""
        try:
            item = self._table.get(f"queue#{stage}")
            known = item is not None and float(item["noted_at"]) >= self._table.now() - NOTE_KNOWN_S
            return float(item["age_s"]) if item and known else 0.0
        except (StoreUnavailable, KeyError, ValueError):
            _LOG.warning("age of the queue cannot be read", exc_info=True)
            return 0.0


class AgeNotes:
    """A worker's notes of how long messages waited until their first receive."""

    def __init__(self, stage: str, ages: QueueAges, clock: Clock) -> None:
        """Nothing is noted yet."""
        self._stage = stage
        self._ages = ages
        self._clock = clock
        self._noted_at = -math.inf

    def see(self, sent_ms: Collection[int]) -> None:
        """Note the age of messages that were sent then (milliseconds since 1970), when they are old.

        A message that was received before is none of them: it may have waited for its next try.
        """
        if not sent_ms:
            return
        age_s = self._clock.now().timestamp() - min(sent_ms) / 1000
        if age_s >= _NOTED_FROM_S and self._clock.monotonic() >= self._noted_at + _NOTED_EVERY_S:
            self._noted_at = self._clock.monotonic()
            self._ages.note(self._stage, age_s)


def _names(slots: Sequence[int]) -> str:
    return ", ".join(f"s{slot:x}" for slot in slots)


def _window(item: Item | None) -> Window | None:
    if not item:
        return None
    try:
        return Window(
            admitted=int(item.get("n", 0)),
            slots={
                int(name[1:], 16): int(count)
                for name, count in item.items()
                if name[0] == "s" and name != "seen"
            },
            ceiling=int(item.get("ceiling", 0)),
            most=int(item.get("most", 0)),
            seen=int(item["seen"]) if "seen" in item else None,
            blocked="blocked" in item,
        )
    except (TypeError, ValueError) as error:
        # Not written by us.
        raise StoreUnavailable from error


def _counters(item: Item) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for name, value in item.items():
        bucket, _, slot = name.rpartition("_")
        if slot.isdecimal():
            found.setdefault(bucket, {})[int(slot)] = int(value)
    return found
