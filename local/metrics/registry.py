"""Counters, summaries and gauges by name and labels."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "summary"]

MOST_SERIES: Final = 5000
"""A label with an unbounded number of values must not fill the memory of a stack that runs for weeks."""
_RECENT: Final = 512
QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class Series:
    """One metric with one set of labels. A summary's quantiles are of its last 512 values."""

    total: float = 0.0
    count: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def quantile(self, share: float) -> float | None:
        """Return the smallest recent value that a `share` of them do not exceed; None without values."""
        if not self.recent:
            return None
        ordered = sorted(self.recent)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Family:
    """All series of one name."""

    name: str
    kind: Kind
    help: str = ""
    series: dict[Labels, Series] = field(default_factory=dict)


class Registry:
    """Metrics in order of their first value."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._size = 0
        self.dropped = 0
        """Values that were dropped at the limit of series."""

    def add(self, name: str, labels: Iterable[tuple[str, str]], amount: float, text: str = "") -> None:
        """Add to a counter."""
        if (series := self._series(name, "counter", labels, text)) is not None:
            series.total += float(amount)
            series.count += 1

    def set_gauge(self, name: str, labels: Iterable[tuple[str, str]], value: float, text: str = "") -> None:
        """Set a gauge."""
        if (series := self._series(name, "gauge", labels, text)) is not None:
            series.total = float(value)

    def set_total(self, name: str, labels: Iterable[tuple[str, str]], value: float, text: str = "") -> None:
        """Set a counter whose total is counted elsewhere."""
        if (series := self._series(name, "counter", labels, text)) is not None:
            series.total = float(value)

    def observe(
        self, name: str, labels: Iterable[tuple[str, str]], values: Iterable[float], text: str = ""
    ) -> None:
        """Add values to a summary."""
        if (series := self._series(name, "summary", labels, text)) is not None:
            for value in values:
                series.total += float(value)
                series.count += 1
                series.recent.append(value)

    def families(self) -> Iterator[Family]:
        """Yield all families."""
        yield from self._families.values()

    def find(self, name: str, labels: Iterable[tuple[str, str]] = ()) -> Series | None:
        """Return one series, or None."""
        family = self._families.get(name)
        return None if family is None else family.series.get(_ordered(labels))

    def _series(self, name: str, kind: Kind, labels: Iterable[tuple[str, str]], text: str) -> Series | None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, text)
        key = _ordered(labels)
        series = family.series.get(key)
        if series is None:
            if self._size >= MOST_SERIES:
                self.dropped += 1
                return None
            self._size += 1
            series = family.series[key] = Series()
        return series


def _ordered(labels: Iterable[tuple[str, str]]) -> Labels:
    return tuple(sorted(labels))
