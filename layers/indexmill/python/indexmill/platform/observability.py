"""Logs, metrics and audit events, set up once per function.

Log messages name events (`stage.completed`); metrics are CloudWatch embedded metric format; audit events are
lines of the service `audit`, which are copied to a log group of their own (docs/decisions/0031-the-audit.md).

Lambda drops lines below the function's ApplicationLogLevel, by their `level`; a line without one, or without
a valid time, counts as INFO. Above INFO metrics and audit events therefore say ERROR.

A URL's query may hold a secret, so no line has one: neither ours nor a library's, in no field. The runtime
logs what a handler raises by itself, past `logging`: so a handler is an `entry_point`.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from indexmill.platform.time import SystemClock

# Libraries are imported where they are used: the function Audit has an `entry_point`, and no layer of them.
if TYPE_CHECKING:
    from aws_lambda_powertools import Metrics
    from aws_lambda_powertools.metrics import EphemeralMetrics

    from indexmill.contracts.identity import CallerContext

T = TypeVar("T")

AuditEvent = Literal[
    "auth_rejected",
    "caller_blocked",
    "caller_linked",
    "caller_unblocked",
    "corpus_renamed",
    "corpus_searched",
    "corpus_shared",
    "corpus_unshared",
    "document_read",
    "internal_rejected",
    "job_canceled",
    "job_completed",
    "job_failed",
    "job_replayed",
    "job_retried",
    "job_submitted",
    "maintenance_changed",
    "rate_limit_hit",
    "scope_rejected",
    "stale_callback",
]
EVENTS: Final[tuple[AuditEvent, ...]] = get_args(AuditEvent)
"""Names of the audit events; docs/operations.md says when each is written, and with which fields."""
NAMESPACE = "Indexmill"
_ABOVE_INFO = ("WARN", "ERROR", "FATAL")
_QUERY: Final = re.compile(r"(://[^\s?#]*)[?#]\S*")
"""Without the scheme, whose search would take quadratic time. A URL as it was submitted may have quotes."""


def without_queries(value: Any) -> Any:
    """Return a value of a log line with every URL in it, at any depth, cut before its query or fragment."""
    if isinstance(value, str):
        return _QUERY.sub(r"\1", value) if "://" in value else value
    if isinstance(value, dict):
        return {without_queries(key): without_queries(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_queries(each) for each in value]
    if value is None or isinstance(value, int | float):
        return value
    return without_queries(str(value))


def entry_point(handler: Callable[[dict[str, Any], Any], T]) -> Callable[[dict[str, Any], Any], T]:
    """Return the handler; what it raises, which the runtime logs, has no query of a URL.

    Such an error keeps the name of its type, by which alarms and people know it, and its place.
    """

    def call(event: dict[str, Any], context: Any) -> T:
        try:
            return handler(event, context)
        except Exception as error:
            if "://" not in (text := str(error)):
                raise
            plain = type(type(error).__name__, (Exception,), {})(without_queries(text))
            raise plain.with_traceback(error.__traceback__) from None

    return call


def _line(fields: Any) -> str:
    """Serialize the fields of a line of ours."""
    text = json.dumps(fields, default=str, separators=(",", ":"), ensure_ascii=False)
    # Most lines have no URL: they are not walked.
    return text if "://" not in text else json.dumps(without_queries(fields), ensure_ascii=False)


class _WithoutQueries(logging.Formatter):
    """Formats as another formatter does, the runtime's or the default, without the queries of URLs."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        line = self._inner.format(record)
        if "://" not in line:
            return line
        try:
            fields = json.loads(line)
        except ValueError:
            return str(without_queries(line))
        return _line(fields) + line[len(line.rstrip("\n")) :]


_HANDLED: Final[set[str]] = set()
"""Loggers with a handler of their own."""


def _is_unhandled(record: logging.LogRecord) -> bool:
    return record.name not in _HANDLED


def set_up_root(*handled: str) -> None:
    """Let libraries log warnings only, without the queries of URLs.

    The runtime sets the root logger's level, and at DEBUG botocore logs secrets. Powertools' filter against
    lines that are logged twice drops those of every logger with the service's name in its own, as those of
    `indexmill.scraper.worker`.
    """
    from aws_lambda_powertools.logging.filters import SuppressFilter

    _HANDLED.update(handled)
    root = logging.getLogger()
    root.setLevel(max(root.level, logging.WARNING))
    for handler in root.handlers:
        for each in [each for each in handler.filters if isinstance(each, SuppressFilter)]:
            handler.removeFilter(each)
            handler.addFilter(_is_unhandled)
        if not isinstance(handler.formatter, _WithoutQueries):
            handler.setFormatter(_WithoutQueries(handler.formatter or logging.Formatter()))


class Observability:
    """Logs, metrics and audit events of a function."""

    def __init__(self, service: str, *, level: str = "INFO") -> None:
        """`service` is the log key and metric dimension."""
        from aws_lambda_powertools import Logger, Metrics

        self.service = service
        self.function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "none")
        filtered = os.environ.get("AWS_LAMBDA_LOG_LEVEL") in _ABOVE_INFO
        self._kept = "ERROR" if filtered else None
        self.log = Logger(service=service, level=level, json_serializer=_line, use_rfc3339=True, utc=True)
        audit = self._kept or "INFO"
        self._audit = Logger(service="audit", level=audit, json_serializer=_line, use_rfc3339=True, utc=True)
        set_up_root(service, "audit")
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
        self._put(name, "Count", value, dimensions)

    def seconds(self, name: str, value: float, **dimensions: str) -> None:
        """Record a duration in seconds."""
        self._put(name, "Seconds", value, dimensions)

    def _put(self, name: str, unit: str, value: float, dimensions: dict[str, str]) -> None:
        if not dimensions:
            self.metrics.add_metric(name=name, unit=unit, value=value)
            return
        from aws_lambda_powertools.metrics import EphemeralMetrics

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
