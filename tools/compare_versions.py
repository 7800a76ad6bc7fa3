"""Compare how long two versions of a function take: P95 and P99, by their invocations in one log group.

    aws logs filter-log-events --log-group-name GROUP --filter-pattern '{ $.type = "platform.report" }' > FILE
    python -m tools.compare_versions FILE OLD NEW

OLD and NEW are version numbers. Exit code 0 when the new version is not slower, 1 when it is, 2 when one of
them has too few invocations, or the file is not from that command.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LEAST: Final = 100
"""Invocations of each version: below, P99 is the slowest one."""
TOLERANCE: Final = 1.2
"""How much longer the new version may take, as a factor, and `SLACK_MS` beyond that."""
SLACK_MS: Final = 5.0
SHARES: Final = {"P95": 0.95, "P99": 0.99}
_STREAM: Final = re.compile(r"\[(\d+|\$LATEST)\]")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Milliseconds by share, of the old and the new version."""

    old: Mapping[str, float]
    new: Mapping[str, float]
    counts: tuple[int, int]

    @property
    def slower(self) -> list[str]:
        """Return the shares in which the new version takes too long."""
        return [share for share in SHARES if self.new[share] > self.old[share] * TOLERANCE + SLACK_MS]


class TooFew(ValueError):
    """Raised when a version has fewer invocations than a comparison needs."""


def durations(events: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the durations in milliseconds by version, without initialisation."""
    found: dict[str, list[float]] = {}
    for event in events:
        stream = _STREAM.search(event["logStreamName"])
        report = json.loads(event["message"])
        if stream and report.get("type") == "platform.report":
            found.setdefault(stream[1], []).append(float(report["record"]["metrics"]["durationMs"]))
    return found


def compare(measured: Mapping[str, Sequence[float]], old: str, new: str) -> Comparison:
    """Compare two versions. Raises TooFew."""
    for version in (old, new):
        if (count := len(measured.get(version, ()))) < LEAST:
            raise TooFew(f"version {version} has {count} invocations; a comparison needs {LEAST}")
    before, after = sorted(measured[old]), sorted(measured[new])
    return Comparison(_shares(before), _shares(after), (len(before), len(after)))


def _shares(ordered: Sequence[float]) -> dict[str, float]:
    """Return the nearest rank of each share."""
    return {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in SHARES.items()}


def main() -> int:
    """Run the command line."""
    if len(sys.argv[1:]) != 3:
        sys.stderr.write("usage: python -m tools.compare_versions EVENTS.json OLD NEW\n")
        return 2
    file, old, new = sys.argv[1:]
    try:
        found = compare(durations(json.loads(Path(file).read_text(encoding="utf-8"))["events"]), old, new)
    except TooFew as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"{file} is no output of filter-log-events: {type(error).__name__}: {error}\n")
        return 2
    for share in SHARES:
        print(f"{share} {found.old[share]:.0f} ms -> {found.new[share]:.0f} ms")
    print(f"slower: {', '.join(found.slower) or 'no'} ({found.counts[0]} and {found.counts[1]} invocations)")
    return 1 if found.slower else 0


if __name__ == "__main__":
    sys.exit(main())
