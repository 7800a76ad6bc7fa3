"""The store of request limits in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from indexmill.platform.limits.store import Shared, StoreUnavailable
from indexmill.platform.limits.window import Admission, Window


class InMemoryLimits:
    """Dictionaries; `unavailable` makes it unreachable. `calls` counts requests."""

    def __init__(self) -> None:
        """Nothing was admitted."""
        self.windows: dict[str, Window] = {}
        self.active: dict[str, dict[str, dict[int, int]]] = {}
        self.maintenance: str | None = None
        self.unavailable = False
        self.calls = 0
        self._lock = threading.Lock()

    def admit(self, key: str, admission: Admission) -> tuple[bool, Window | None]:
        """Compare and set."""
        with self._asked():
            before = self.windows.get(key)
            fits = admission.fits(before)
            if fits:
                self.windows[key] = (before or Window()).with_request(admission)
            return fits, before

    def forget(self, key: str, slots: Sequence[int]) -> None:
        """Remove the slots."""
        with self._asked():
            window = self.windows[key]
            left = {end: count for end, count in window.slots.items() if end not in slots}
            self.windows[key] = Window(window.admitted, left, window.ceiling, window.most, window.seen)

    def is_blocked(self, key: str) -> bool:
        """Return what `block` set."""
        with self._asked():
            return self.windows.get(key, Window()).blocked

    def block(self, key: str) -> None:
        """Block a caller."""
        self.windows[key] = Window(blocked=True)

    def move_active(
        self, service: str, bucket: str, old: int | None, new: int, over: Sequence[int]
    ) -> Mapping[int, int]:
        """Move one."""
        with self._asked():
            counters = self.active.setdefault(service, {}).setdefault(bucket, {})
            counters[new] = counters.get(new, 0) + 1
            if old is not None:
                counters[old] = counters.get(old, 0) - 1
            for slot in over:
                counters.pop(slot, None)
            return dict(counters)

    def shared(self, service: str) -> Shared:
        """Return copies."""
        return self.read((), (service,))[1][service]

    def read(
        self, keys: Sequence[str], services: Sequence[str]
    ) -> tuple[dict[str, Window], dict[str, Shared]]:
        """Return copies."""
        with self._asked():
            active = {
                each: {bucket: dict(found) for bucket, found in self.active.get(each, {}).items()}
                for each in services
            }
            found = {key: self.windows[key] for key in keys if key in self.windows}
            return found, {each: Shared(active[each], self.maintenance) for each in services}

    def _asked(self) -> threading.Lock:
        self.calls += 1
        if self.unavailable:
            raise StoreUnavailable
        return self._lock
