"""Logs, metrics and audit events, set up once per function.

Log messages name events (`stage.completed`); metrics are CloudWatch embedded metric format; audit events are
log lines of their own logger so that they can be kept longer.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from indexmill.contracts.identity import CallerContext

NAMESPACE = "Indexmill"


class Observability:
    """Logs, metrics and audit events of a function."""

    def __init__(self, service: str, *, level: str = "INFO") -> None:
        """`service` is the log key and metric dimension."""
        self.service = service
        self.log = Logger(service=service, level=level, use_rfc3339=True, utc=True)
        self._audit = Logger(service="audit", level="INFO", use_rfc3339=True, utc=True)
        self.metrics = Metrics(namespace=NAMESPACE, service=service)

    def emit(self, event: str, ctx: CallerContext, **fields: Any) -> None:
        """Write one audit event: who did what."""
        self._audit.info(
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
        blob.flush_metrics()

    def flush(self) -> None:
        """Write what was counted since the last flush."""
        if self.metrics.metric_set:
            self.metrics.flush_metrics()
