"""Tables of `indexmill status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

Found = Mapping[str, Any]
"""JSON object of the control port's `/status`."""

_COLUMNS: Final = {
    "environments": "envs",
    "busy": "busy",
    "waiting": "waiting",
    "invocations": "calls",
    "errors": "errors",
    "throttles": "throttled",
    "cold_starts": "cold",
}
_RARE: Final = ("waiting", "throttles")
_DEAD: Final = "Dlq"
"""Suffix of the logical ids of dead-letter queues."""


def services(found: Found, memory: Mapping[str, float]) -> Table:
    """Return the processes beside the functions, and the memory of everything."""
    table = Table("service", "process", "restarts", "memory MB", box=None)
    for name, service in found["services"].items():
        table.add_row(name, str(service["pid"]), str(service["restarts"]), f"{memory.get(name, 0):.0f}")
    table.add_row("host and front", str(found["pid"]), "", f"{memory['stack']:.0f}")
    table.add_row("functions", "", "", f"{memory['functions']:.0f}")
    table.add_row("total", "", "", f"{memory['total']:.0f}")
    return table


def functions(found: Found) -> Table:
    """Return the functions that were invoked, with their environments; columns of zeros are left out."""
    shown = {
        name: each
        for name, each in found.get("functions", {}).items()
        if each["invocations"] or each["environments"] or each["throttles"]
    }
    columns = {
        column: head
        for column, head in _COLUMNS.items()
        if column not in _RARE or any(each[column] for each in shown.values())
    }
    table = Table("function", *columns.values(), "p50 ms", "p95 ms", "last", box=None)
    for name, each in shown.items():
        took = found.get("durations", {}).get(name, {})
        times = [f"{took[key]:.0f}" if key in took else "" for key in ("p50_ms", "p95_ms")]
        last = f"{age(took['last_s'])} ago" if "last_s" in took else ""
        table.add_row(name, *(_count(each, column) for column in columns), *times, last)
    return table


def queues(found: Found) -> Table:
    """Return queues with depths and ages, each beside its dead letters; disabled sources are marked."""
    depths = found.get("queues", {})
    sources = {source["queue"]: source for source in found.get("sources", {}).values()}
    table = Table("queue", "visible", "in flight", "delayed", "oldest", "in its DLQ", "taken", "", box=None)
    for name, depth in depths.items():
        if name.endswith(_DEAD):
            continue
        dead = depths.get(name.removesuffix("Queue") + _DEAD)
        waiting = "?" if dead is None else str(dead["visible"] + dead["in_flight"])
        shown = f"[red]{waiting}[/]" if waiting not in ("0", "?") else waiting
        source = sources.get(name, {})
        state = (
            "[yellow]source is disabled[/]"
            if not source.get("enabled", True)
            else hidden_reason(found, depth, source)
        )
        counts = (str(depth[column]) for column in ("visible", "in_flight", "delayed"))
        oldest = _oldest(depth)
        table.add_row(name, *counts, oldest, shown, str(source.get("messages", "")), state)
    if not depths:
        table.add_row("[yellow]the AWS endpoint does not answer[/]")
    return table


def hidden_reason(found: Found, depth: Mapping[str, int], source: Mapping[str, Any]) -> str:
    """Say why messages are in flight while no function processes them, and for how long that can last."""
    if not depth["in_flight"] or not source or source.get("in_flight"):
        return ""
    if source.get("item_failures") and not source.get("function_errors"):
        return "[yellow]returned for a retry, each with its own delay[/]"
    # Messages received before this stack started have been hidden since then at the latest.
    since = found.get("durations", {}).get(source["function"], {}).get("last_s", found.get("up_s", 0.0))
    left = max(0.0, source["visibility_s"] - since)
    return f"[yellow]failed, hidden for {age(left)} at most[/]"


def metrics(found: Found) -> Table:
    """Return the metrics that functions emitted."""
    table = Table("metric", "labels", "total", "count", "p95", box=None)
    for each in sorted(found["metrics"], key=lambda metric: str(metric["name"])):
        labels = " ".join(f"{name}={value}" for name, value in each["labels"].items())
        p95 = "" if each.get("p95") is None else f"{each['p95']:.3g}"
        total = f"{each['total']:g}"
        table.add_row(escape(each["name"]), escape(labels), total, str(each.get("count", "")), p95)
    return table


def age(seconds: float) -> str:
    """Format a duration with two units at most."""
    whole = int(seconds)
    for unit, size, below, smaller in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def _oldest(depth: Mapping[str, Any]) -> str:
    """Format the age of the oldest message; empty for an empty queue, ? when unknown."""
    if not any(depth[column] for column in ("visible", "in_flight", "delayed")):
        return ""
    return "?" if depth.get("oldest_s") is None else age(depth["oldest_s"])


def _count(each: Mapping[str, Any], column: str) -> str:
    text = str(each[column])
    return f"[red]{text}[/]" if column in ("errors", "throttles") and each[column] else text
