"""Metrics in Prometheus' text format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from local.metrics.registry import QUANTILES, Family, Labels, Series

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")


def expose(families: Iterable[Family]) -> str:
    """Return all families, each with its type; characters that Prometheus forbids become `_`."""
    return "".join(f"{line}\n" for family in families for line in _family(family))


def _family(family: Family) -> Iterator[str]:
    name = _legal(family.name, _NOT_IN_NAMES)
    if family.help:
        yield f"# HELP {name} {_escaped(family.help)}"
    yield f"# TYPE {name} {family.kind}"
    for labels, series in family.series.items():
        if family.kind == "summary":
            yield from _summary(name, labels, series)
        else:
            yield f"{name}{_labels(labels)} {_number(series.total)}"


def _summary(name: str, labels: Labels, series: Series) -> Iterator[str]:
    for share in QUANTILES:
        value = series.quantile(share)
        if value is not None:
            yield f"{name}{_labels((*labels, ('quantile', f'{share:g}')))} {_number(value)}"
    yield f"{name}_sum{_labels(labels)} {_number(series.total)}"
    yield f"{name}_count{_labels(labels)} {series.count}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    shown = (f'{_legal(name, _NOT_IN_LABELS)}="{_escaped(value, quoted=True)}"' for name, value in labels)
    return "{" + ",".join(shown) + "}"


def _legal(name: str, forbidden: re.Pattern[str]) -> str:
    clean = forbidden.sub("_", name)
    return f"_{clean}" if clean[:1].isdigit() or not clean else clean


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
