"""Logs, metrics and audit events, set up once per function.

Log messages name events (`stage.completed`); metrics are CloudWatch embedded metric format; audit events are
lines of the service `audit`, which are copied to a log group of their own (docs/decisions/0031-the-audit.md).

Lambda drops lines below the function's ApplicationLogLevel, by their `level`; a line without one, or without
a valid time, counts as INFO. Above INFO metrics and audit events therefore say ERROR.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from indexmill.contracts.audit import AuditEvent
from indexmill.contracts.identity import CallerContext
from indexmill.platform.time.clock import SystemClock

NAMESPACE = "Indexmill"
_ABOVE_INFO = ("WARN", "ERROR", "FATAL")


def _quiet_libraries() -> None:
    """Let libraries log warnings only: the runtime sets the root, and at DEBUG botocore logs secrets."""
    root = logging.getLogger()
    root.setLevel(max(root.level, logging.WARNING))


# Also here: secrets are read before the first Observability is made.
_quiet_libraries()


class Observability:
    """Logs, metrics and audit events of a function."""

    def __init__(self, service: str, *, level: str = "INFO") -> None:
        """`service` is the log key and metric dimension."""
        _quiet_libraries()
        self.service = service
        self.function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "none")
        filtered = os.environ.get("AWS_LAMBDA_LOG_LEVEL") in _ABOVE_INFO
        self._kept = "ERROR" if filtered else None
        self.log = Logger(service=service, level=level, use_rfc3339=True, utc=True)
        self._audit = Logger(service="audit", level=self._kept or "INFO", use_rfc3339=True, utc=True)
        self.metrics = Metrics(namespace=NAMESPACE, service=service)

    def emit(self, event: AuditEvent, ctx: CallerContext, **fields: Any) -> None:
        """Write one audit event: who did what; never a key, a question's text or a document's."""
        write = self._audit.info if self._kept is None else self._audit.error
        write(
            event,
            extra={
                "caller_id": ctx.caller_id,
                "caller_type": ctx.caller_type,
                "tier": ctx.tier,
                **fields,
            },
        )

    def count(self, name: str, value: float = 1, **dimensions: str) -> None:
        """Count something, in a blob of its own when it has dimensions."""
        self._put(name, MetricUnit.Count, value, dimensions)

    def seconds(self, name: str, value: float, **dimensions: str) -> None:
        """Record a duration in seconds."""
        self._put(name, MetricUnit.Seconds, value, dimensions)

    def _put(self, name: str, unit: MetricUnit, value: float, dimensions: dict[str, str]) -> None:
        if not dimensions:
            self.metrics.add_metric(name=name, unit=unit, value=value)
            return
        # Dimensions hold for a whole blob: such a metric gets one of its own.
        blob = EphemeralMetrics(namespace=NAMESPACE, service=self.service)
        for key, text in dimensions.items():
            blob.add_dimension(key, text)
        blob.add_metric(name=name, unit=unit, value=value)
        self._keep(blob)
        blob.flush_metrics()

    def flush(self) -> None:
        """Write what was counted since the last flush."""
        if self.metrics.metric_set:
            self._keep(self.metrics)
            self.metrics.flush_metrics()

    def _keep(self, blob: Metrics | EphemeralMetrics) -> None:
        """Give a blob what Lambda's filter reads, when it would drop the blob without."""
        if self._kept is not None:
            blob.add_metadata("level", self._kept)
            blob.add_metadata("timestamp", SystemClock().now().isoformat())


class PacedCounts:
    """Counts of one metric, written once a second at most: a flood must not become one of log lines."""

    def __init__(self, name: str, observability: Observability, monotonic: Callable[[], float]) -> None:
        """`monotonic` is a clock's, in seconds."""
        self._name = name
        self._observability = observability
        self._monotonic = monotonic
        self._counts: Counter[tuple[tuple[str, str], ...]] = Counter()
        self._written_at = -math.inf

    def add(self, **dimensions: str) -> None:
        """Count one."""
        self._counts[tuple(dimensions.items())] += 1

    def write(self) -> None:
        """Write what was counted, unless something was written within the last second."""
        now = self._monotonic()
        if not self._counts or now < self._written_at + 1.0:
            return
        self._written_at = now
        for dimensions, number in self._counts.items():
            self._observability.count(self._name, number, **dict(dimensions))
        self._counts.clear()
