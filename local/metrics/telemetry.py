"""Collection of a stack's metrics: from function logs, from the host's counters, from the queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from local.compute.log_files import LogRecord
from local.compute.pool import FunctionStats
from local.logbook.records import parse_report
from local.metrics.emf import read
from local.metrics.exposition import expose
from local.metrics.queues import QueueDepth
from local.metrics.registry import Registry

_DURATION: Final = "lambda_duration_seconds"
_COUNTERS: Final = {
    "invocations": ("lambda_invocations_total", "Invocations that ended."),
    "errors": ("lambda_errors_total", "Invocations that ended in an error or a time-out."),
    "throttles": ("lambda_throttles_total", "Invocations that were refused."),
    "cold_starts": ("lambda_cold_starts_total", "Execution environments that were started."),
}
_GAUGES: Final = {
    "environments": ("lambda_environments", "Execution environments now."),
    "busy": ("lambda_busy_environments", "Execution environments with an invocation."),
    "waiting": ("lambda_waiting_invocations", "Invocations that wait for an environment."),
}
_DEPTHS: Final = {
    "visible": ("sqs_messages_visible", "Visible messages."),
    "in_flight": ("sqs_messages_in_flight", "Messages in flight."),
    "delayed": ("sqs_messages_delayed", "Delayed messages."),
    "oldest_s": ("sqs_oldest_message_age_seconds", "Age of the oldest message that is not poison."),
}


class Host(Protocol):
    """Source of the functions' counters."""

    def stats(self) -> Mapping[str, FunctionStats]:
        """Return counters by function name."""
        ...


class Depths(Protocol):
    """Source of the queues' depths."""

    async def read(self) -> dict[str, QueueDepth]:
        """Return depths by logical id; queues that do not answer are left out."""
        ...


class Telemetry:
    """The metrics of one stack; all methods belong to its event loop."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._last: dict[str, float] = {}
        self._host: Host | None = None
        self._queues: Depths | None = None

    def watch(self, host: Host, queues: Depths) -> None:
        """Read from these from now on."""
        self._host, self._queues = host, queues

    def on_log(self, record: LogRecord) -> None:
        """Record the metrics of one log record; quick, and never raises."""
        if record.stream == "platform":
            self._report(record)
            return
        for found in read(record.message):
            if found.unit == "Count":
                self._registry.add(found.name, found.dimensions, sum(found.values))
            else:
                self._registry.observe(found.name, found.dimensions, found.values)

    async def exposition(self) -> str:
        """Return all metrics in Prometheus' text format."""
        for name, stats in (self._host.stats() if self._host is not None else {}).items():
            label = (("function", name),)
            for field, (metric, text) in _COUNTERS.items():
                self._registry.set_total(metric, label, getattr(stats, field), text)
            for field, (metric, text) in _GAUGES.items():
                self._registry.set_gauge(metric, label, getattr(stats, field), text)
        for queue, depth in (await self._depths()).items():
            for field, (metric, text) in _DEPTHS.items():
                if (value := getattr(depth, field)) is not None:
                    self._registry.set_gauge(metric, (("queue", queue),), value, text)
        dropped = "Values left out because there are too many series."
        self._registry.set_total("local_metrics_dropped_total", (), self._registry.dropped, dropped)
        return expose(self._registry.families())

    async def summary(self) -> dict[str, Any]:
        """Return the metrics for `status`: queues, durations by function, and the functions' own."""
        return {
            "queues": {name: depth.as_dict() for name, depth in (await self._depths()).items()},
            "durations": {name: self._duration(name, last) for name, last in self._last.items()},
            "metrics": self._emitted(),
        }

    def _report(self, record: LogRecord) -> None:
        report = parse_report(record.message)
        if report is None:
            return
        label = (("function", record.function),)
        self._last[record.function] = time.monotonic()
        text = "Durations as in REPORT lines."
        self._registry.observe(_DURATION, label, [report.duration_ms / 1e3], text)
        if report.init_ms is not None:
            text = "Initialisations as in REPORT lines."
            self._registry.observe("lambda_init_duration_seconds", label, [report.init_ms / 1e3], text)
        self._registry.set_gauge("lambda_memory_megabytes", label, report.memory_mb, "Peak memory.")

    def _duration(self, function: str, last: float) -> dict[str, float]:
        series = self._registry.find(_DURATION, (("function", function),))
        known = {"p50_ms": 0.5, "p95_ms": 0.95} if series is not None else {}
        shown = {
            name: round((series.quantile(share) or 0.0) * 1e3, 1) if series is not None else 0.0
            for name, share in known.items()
        }
        return {**shown, "last_s": round(time.monotonic() - last, 1)}

    def _emitted(self) -> list[dict[str, Any]]:
        own = ("lambda_", "sqs_", "local_")
        return [
            {"name": family.name, "labels": dict(labels), "kind": family.kind, "total": series.total}
            | ({"count": series.count, "p95": series.quantile(0.95)} if family.kind == "summary" else {})
            for family in self._registry.families()
            if not family.name.startswith(own)
            for labels, series in family.series.items()
        ]

    async def _depths(self) -> dict[str, QueueDepth]:
        return await self._queues.read() if self._queues is not None else {}
