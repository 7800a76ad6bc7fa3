"""Roots of callers in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from indexmill.access.ports import RootsUnavailable


@dataclass
class InMemoryRoots:
    """Roots by id; `broken` makes them unavailable."""

    known: dict[str, str] = field(default_factory=dict)
    broken: bool = False
    asked: list[list[str]] = field(default_factory=list)

    def find(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the root of each id that is known."""
        self.asked.append(list(ids))
        if self.broken:
            raise RootsUnavailable
        return {each: self.known[each] for each in ids if each in self.known}
