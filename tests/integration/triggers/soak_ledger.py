"""Ledger of a delivery soak: the history of each message as poller and workers saw it, and the verdict."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from local.template.spec import InvokeResult

Key = tuple[int, int]
"""A message's number and its receive count."""


@dataclass(slots=True)
class Delivery:
    """One message in one invocation, by the clock that all processes share."""

    number: int
    count: int
    began: float
    ended: float = 0.0
    settled: bool = False


@dataclass(slots=True)
class WorkerRecord:
    """A worker's record of one message: start, and end or crash."""

    began: float
    pid: int
    ended: float | None = None


@dataclass
class Figures:
    """Figures of a soak; `str` formats them."""

    messages: int
    deaths: Counter[str]
    environments: int
    at_once: int
    deliveries: int
    most_receives: int
    lost: list[int]
    settled_twice: list[int]
    wrong_counts: list[tuple[int, list[int]]]
    overlaps: list[tuple[int, float]]
    """Messages that two workers processed at once, and for how many seconds."""
    wall_s: float

    def __str__(self) -> str:
        deaths = ", ".join(f"{count} {name}" for name, count in sorted(self.deaths.items()))
        return (
            f"{self.messages} messages in {self.wall_s:.1f} s: {self.deliveries} deliveries, at most "
            f"{self.most_receives} of one message; {self.deaths.total()} deaths ({deaths}); "
            f"{self.environments} environments, {self.at_once} at once; lost {len(self.lost)}, settled twice "
            f"{len(self.settled_twice)}, wrong receive counts {len(self.wrong_counts)}, overlaps "
            f"{len(self.overlaps)}"
        )


@dataclass
class Ledger:
    """Deliveries as the poller made them; `lives` as the workers recorded them in the journal."""

    journal: Path
    deliveries: dict[int, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    lives: dict[Key, list[WorkerRecord]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[int, list[Key]] = field(default_factory=dict)
    """Records in each working process, as far as the journal was read."""
    pids: set[int] = field(default_factory=set)
    deaths: Counter[str] = field(default_factory=Counter)
    settled: int = 0
    _read: int = 0

    def close(self, open_deliveries: Iterable[Delivery], failed: set[int], result: InvokeResult) -> None:
        """Record the end of an invocation: `failed` are the numbers that it reported as failed."""
        if result.function_error is not None:
            error = str(json.loads(result.payload)["errorType"])
            self.deaths.update([error] if error in ("Runtime.ExitError", "Sandbox.Timedout") else [])
        for each in open_deliveries:
            each.settled = result.function_error is None and each.number not in failed
            self.settled += each.settled

    def read_journal(self) -> None:
        """Read what the workers have recorded since the last call."""
        if not self.journal.exists():
            return
        with self.journal.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            kind, pid, at, held = json.loads(line)
            self._take(kind, pid, at, [(number, count) for number, count in held])

    def _take(self, kind: str, pid: int, at: float, keys: list[Key]) -> None:
        if kind == "start":
            self.pids.add(pid)
            self.busy[pid] = keys
            for key in keys:
                self.lives[key].append(WorkerRecord(at, pid))
            return
        self.busy.pop(pid, None)
        for key in keys:
            for life in self.lives[key]:
                life.ended = at if life.pid == pid else life.ended

    def killed(self, pid: int, at: float) -> None:
        """Record that a process was killed from outside, which it cannot record itself."""
        for key in self.busy.pop(pid, ()):
            for life in self.lives[key]:
                life.ended = at if life.pid == pid and life.ended is None else life.ended

    def figures(self, messages: int, wall_s: float) -> Figures:
        """Return the verdict on messages numbered from 0."""
        self.read_journal()
        by_number = {number: sorted(found, key=_began) for number, found in self.deliveries.items()}
        everything = range(messages)
        # Each receive adds one, and a message is received again only after a delivery that failed.
        wrong = {
            number: [each.count for each in found]
            for number, found in by_number.items()
            if [each.count for each in found] != list(range(1, len(found) + 1))
            or any(each.settled for each in found[:-1])
        }
        times = {number: sum(each.settled for each in found) for number, found in by_number.items()}
        return Figures(
            messages=messages,
            deaths=self.deaths,
            environments=len(self.pids),
            at_once=self._at_once(),
            deliveries=sum(len(found) for found in by_number.values()),
            most_receives=max(each.count for found in by_number.values() for each in found),
            lost=[number for number in everything if not times.get(number)],
            settled_twice=[number for number, count in times.items() if count > 1],
            wrong_counts=list(wrong.items()),
            overlaps=self._overlaps(by_number),
            wall_s=wall_s,
        )

    def _overlaps(self, by_number: dict[int, list[Delivery]]) -> list[tuple[int, float]]:
        """Yield two lives of one message that overlap.

        A worker that noted no end was ended by the host; it lived until its invocation came back at most.
        """
        found = []
        for number, deliveries in by_number.items():
            spans = [
                (life.began, life.ended if life.ended is not None else each.ended)
                for each in deliveries
                for life in self.lives[number, each.count]
            ]
            spans.sort()
            shared = [a[1] - b[0] for a, b in pairwise(spans) if b[0] < a[1]]
            found += [(number, seconds) for seconds in shared]
        return found

    def _at_once(self) -> int:
        """Return the most processes that worked at once; those without an end are not counted."""
        spans = {(each.began, each.ended) for lives in self.lives.values() for each in lives if each.ended}
        changes = sorted(change for began, ended in spans for change in ((began, 1), (ended or 0.0, -1)))
        return max(accumulate((change for _, change in changes), initial=0))


def _began(delivery: Delivery) -> tuple[int, float]:
    return delivery.count, delivery.began
