"""Triggers besides HTTP: mappings of queues, rules with a schedule, subscriptions of log groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from local.template.cron import Cron, CronError, parse_cron
from local.template.intrinsics import TemplateError
from local.template.spec import ScheduleSpec, SqsSourceSpec, SubscriptionSpec, function_name

_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)(s?)\)")
_CRON: Final = re.compile(r"cron\((.*)\)")
_PATTERN: Final = re.compile(r'\{ \$\.(\w+) = "([\w.-]+)" \}')
_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400}


def read_sqs_source(name: str, properties: Mapping[str, Any], queues: Mapping[str, str]) -> SqsSourceSpec:
    """Return a resolved event source mapping; `queues` gives the logical id of a queue's ARN.

    Raises TemplateError for another kind of source, or a filter.
    """
    arn = properties["EventSourceArn"]
    if arn not in queues:
        raise TemplateError(f"{name} reads from {arn}, which is no queue of this template")
    if properties.get("FilterCriteria"):
        raise TemplateError(f"{name} has a filter, which is not supported here")
    return SqsSourceSpec(
        logical_id=name,
        function=function_name(properties["FunctionName"]),
        queue=queues[arn],
        batch_size=int(properties.get("BatchSize", 10)),
        window_s=float(properties.get("MaximumBatchingWindowInSeconds", 0)),
        maximum_concurrency=_optional_int((properties.get("ScalingConfig") or {}).get("MaximumConcurrency")),
        report_batch_item_failures="ReportBatchItemFailures" in properties.get("FunctionResponseTypes", ()),
        enabled=str(properties.get("Enabled", True)).lower() == "true",
    )


def read_schedule(name: str, properties: Mapping[str, Any]) -> Iterator[ScheduleSpec]:
    """Return one schedule for each target of a resolved rule. Raises TemplateError where AWS would."""
    every_s, cron = _times(name, str(properties.get("ScheduleExpression", "")))
    for target in properties["Targets"]:
        yield ScheduleSpec(
            logical_id=name,
            function=function_name(target["Arn"]),
            every_s=every_s,
            cron=cron,
            input=target.get("Input"),
            enabled=properties.get("State", "ENABLED") == "ENABLED",
        )


def read_subscription(
    name: str, properties: Mapping[str, Any], writers: Mapping[str, str]
) -> SubscriptionSpec:
    """Return a resolved subscription filter; `writers` gives the name of a log group's function.

    Raises TemplateError for a group that no function writes into, or a pattern that is not supported here.
    """
    group, pattern = properties["LogGroupName"], _PATTERN.fullmatch(properties["FilterPattern"])
    if group not in writers:
        raise TemplateError(f"{name} reads from {group}, which no function of this template writes into")
    if pattern is None:
        raise TemplateError(f'{name} has a filter that is not of the form {{ $.field = "value" }}')
    target = function_name(properties["DestinationArn"])
    return SubscriptionSpec(name, group, writers[group], target, field=pattern[1], value=pattern[2])


def _times(name: str, expression: str) -> tuple[float, Cron | None]:
    """Return the seconds of a rate, or a calendar."""
    if calendar := _CRON.fullmatch(expression):
        try:
            return 0.0, parse_cron(calendar[1])
        except CronError as error:
            raise TemplateError(f"{name} is scheduled by {expression!r}: {error}") from error
    rate = _RATE.fullmatch(expression)
    if rate is None:
        raise TemplateError(f"{name} is scheduled by {expression!r}; AWS takes rate(…) and cron(…)")
    # AWS refuses rate(1 minutes) and rate(5 minute) too.
    if (count := int(rate[1])) == 0 or (count == 1) == bool(rate[3]):
        raise TemplateError(f"{name} is scheduled by {expression!r}; AWS takes 1 {rate[2]}, 2 {rate[2]}s, …")
    return float(count * _SECONDS[rate[2]]), None


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)
