"""CloudWatch's embedded metric format: metrics that functions write as log lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """Values of one metric with its dimensions, as a function emitted them."""

    name: str
    unit: str
    dimensions: tuple[tuple[str, str], ...]
    values: tuple[float, ...]


def read(line: str) -> list[Measurement]:
    """Return the measurements of a log line; none when it is no metrics blob, or a malformed one."""
    if not line.startswith("{") or '"_aws"' not in line:
        return []
    try:
        blob = json.loads(line)
        return list(_measurements(blob))
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _measurements(blob: Mapping[str, Any]) -> Iterator[Measurement]:
    for directive in blob["_aws"]["CloudWatchMetrics"]:
        # Several dimension sets are views of the same values: the first is the most detailed one.
        names = next(iter(directive.get("Dimensions") or ()), ())
        dimensions = tuple(sorted((str(name), str(blob[name])) for name in names))
        for metric in directive["Metrics"]:
            given = blob[metric["Name"]]
            values = tuple(float(value) for value in (given if isinstance(given, list) else [given]))
            yield Measurement(str(metric["Name"]), str(metric.get("Unit", "None")), dimensions, values)
