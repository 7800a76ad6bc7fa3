"""The sliding window of one caller: counters of sixtieths of it. Pure.

A request is counted in the slot in which it was admitted, until the slot's end has left the window. So it is
counted for at least the window, and for a sixtieth of it longer at most: a decision differs from the exact
one only on the strict side. Slots are named by their ends, so that a window of another length reads them too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

SLOTS: Final = 60
ACTIVE_S: Final = 600
"""Active callers are counted in slots of ten minutes."""
_ACTIVE_SLOTS: Final = 7
"""The slot that is not over, and an hour before it."""
_CS: Final = 100
"""Ends of slots are whole hundredths of a second."""
_KEPT_S: Final = (_ACTIVE_SLOTS + 1) * ACTIVE_S
_MARGIN_S: Final = 600


def slot_at(now: float, window_s: int) -> int:
    """Return the slot of `now`: its end in hundredths of a second."""
    width = window_s / SLOTS
    return math.ceil(round((math.floor(now / width) + 1) * width * _CS, 3))


def active_slot(now: float) -> int:
    """Return the number of the ten minutes in which `now` is."""
    return int(now // ACTIVE_S)


def active_callers(counters: Mapping[int, int], now: float) -> int:
    """Return how many callers were active within the last hour, by the slots of their last requests."""
    newest = active_slot(now)
    return sum(count for slot, count in counters.items() if newest - _ACTIVE_SLOTS < slot <= newest)


def is_recent(slot: int, now: float) -> bool:
    """Return whether callers that were active in the ten minutes `slot` still count."""
    return slot > active_slot(now) - _ACTIVE_SLOTS


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of one caller, as they are stored."""

    admitted: int = 0
    """All that ever were; it only grows."""
    slots: Mapping[int, int] = field(default_factory=dict)
    """Admitted requests by slot; some slots may have left the window."""
    ceiling: int = 0
    """`admitted` may grow to this, as known to the last request that knew all slots."""
    most: int = 0
    """The limit with which `ceiling` was computed."""
    seen: int | None = None
    """Ten minutes of the last request that counted the caller as active."""
    blocked: bool = False

    def count(self, now: float, window_s: int) -> int:
        """Return how many requests are in the window that ends now."""
        since = (now - window_s) * _CS
        return sum(count for end, count in self.slots.items() if end > since)

    def over(self, now: float, window_s: int) -> tuple[int, ...]:
        """Return the slots that have left the window."""
        since = (now - window_s) * _CS
        return tuple(end for end in self.slots if end <= since)

    def wait_s(self, now: float, window_s: int, most: int) -> float:
        """Return the seconds until fewer than `most` are in the window, if nothing else comes."""
        left = self.count(now, window_s)
        since = (now - window_s) * _CS
        for end in sorted(end for end in self.slots if end > since):
            if left < most:
                break
            left -= self.slots[end]
            since = end
        return max(0.0, since / _CS + window_s - now)

    def with_request(self, admission: RequestAdmission) -> Window:
        """Return the window after `admission`."""
        slots = {end: count for end, count in self.slots.items() if end not in admission.drop}
        slots[admission.slot] = slots.get(admission.slot, 0) + 1
        known = admission.between is not None or not self.admitted
        return replace(
            self,
            admitted=self.admitted + 1,
            slots=slots,
            ceiling=admission.ceiling if known else self.ceiling,
            most=admission.most if known else self.most,
            seen=self.seen if admission.active is None else admission.active,
        )


@dataclass(frozen=True, slots=True)
class RequestAdmission:
    """One conditional write that admits a request."""

    slot: int
    most: int
    ceiling: int
    """New ceiling of the window's `admitted`; without `between` only for a window that does not exist."""
    expires_at: int
    between: tuple[int, int] | None = None
    """Least and most that `admitted` may be; None: the stored ceiling decides if its limit was not higher."""
    drop: tuple[int, ...] = ()
    active: int | None = None
    """The ten minutes in which the caller counts as active."""

    def fits(self, window: Window | None) -> bool:
        """Return whether the condition holds."""
        if window is None or (not window.admitted and not window.blocked):
            return self.between is None
        if window.blocked:
            return False
        if self.between is not None:
            least, most = self.between
            return least <= window.admitted <= most
        return window.admitted < window.ceiling and window.most <= self.most


def admission(
    known: Window | None, now: float, window_s: int, most: int, *, counts_as_active: bool
) -> RequestAdmission:
    """Return the write that admits a request now; `known` is what the process last saw of the window.

    An old copy makes the bound too low, never too high: what left the window meanwhile is not in it.
    """
    active = active_slot(now) if counts_as_active else None
    expires_at = math.ceil(now + max(2 * window_s + _MARGIN_S, _KEPT_S))
    slot = slot_at(now, window_s)
    if known is None or not known.admitted:
        return RequestAdmission(slot, most, most, expires_at, active=active)
    # What has left the window, at least: no slot that did can change any more.
    gone = known.admitted - known.count(now, window_s)
    ceiling = gone + most
    drop = known.over(now, window_s)
    return RequestAdmission(slot, most, ceiling, expires_at, (known.admitted, ceiling - 1), drop, active)
