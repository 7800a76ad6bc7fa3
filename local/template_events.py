"""What makes functions run besides HTTP: event source mappings of queues, and rules with a schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from local.intrinsics import TemplateError
from local.spec import ScheduleSpec, SqsSourceSpec

_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400}


def read_sqs_source(name: str, properties: Mapping[str, Any], queues: Mapping[str, str]) -> SqsSourceSpec:
    """A resolved event source mapping; `queues` gives the logical id of a queue's ARN.

    Raises TemplateError for another kind of source, or a filter.
    """
    arn = properties["EventSourceArn"]
    if arn not in queues:
        raise TemplateError(f"{name} reads from {arn}, which is no queue of this template")
    if properties.get("FilterCriteria"):
        raise TemplateError(f"{name} has a filter, which is not supported here")
    return SqsSourceSpec(
        logical_id=name,
        function=properties["FunctionName"],
        queue=queues[arn],
        batch_size=int(properties.get("BatchSize", 10)),
        window_s=float(properties.get("MaximumBatchingWindowInSeconds", 0)),
        maximum_concurrency=_optional_int((properties.get("ScalingConfig") or {}).get("MaximumConcurrency")),
        report_batch_item_failures="ReportBatchItemFailures" in properties.get("FunctionResponseTypes", ()),
        enabled=str(properties.get("Enabled", True)).lower() == "true",
    )


def read_schedule(name: str, properties: Mapping[str, Any]) -> Iterator[ScheduleSpec]:
    """One schedule for each target of a resolved rule. Raises TemplateError for anything but a rate."""
    expression = properties.get("ScheduleExpression", "")
    rate = _RATE.fullmatch(expression)
    if rate is None:
        raise TemplateError(f"{name} is scheduled by {expression!r}; only rate(…) is supported here")
    for target in properties["Targets"]:
        yield ScheduleSpec(
            logical_id=name,
            function=target["Arn"].rpartition(":")[2],
            every_s=float(int(rate[1]) * _SECONDS[rate[2]]),
            input=target.get("Input"),
            enabled=properties.get("State", "ENABLED") == "ENABLED",
        )


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)
