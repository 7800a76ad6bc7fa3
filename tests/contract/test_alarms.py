"""Alarms of the stack, evaluated as CloudWatch does: each fires at its limit and is quiet below."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from indexmill.platform.observability import NAMESPACE
from local.template.intrinsics import Resolver
from tests.support.data_stack import CHOICES, resources
from tests.support.function_env import template

Period = dict[tuple[str, str], float]
"""Values of one period by metric and the first of its dimensions; what published nothing is left out."""
GIB = 2.0**30
ACCOUNT = "500"
COMPARED: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": lambda value, limit: value > limit,
    "GreaterThanOrEqualToThreshold": lambda value, limit: value >= limit,
    "LessThanThreshold": lambda value, limit: value < limit,
}


@cache
def alarms() -> dict[str, dict[str, Any]]:
    """Return the alarms of the template, and those of a data plane of each kind."""
    found = dict(template()["Resources"])
    for choice in CHOICES:
        found |= resources(choice)
    return {name: body["Properties"] for name, body in found.items() if body["Type"].endswith("::Alarm")}


def value(found: dict[str, Any], name: str, period: Period) -> float | None:
    """Return the value of one of the alarm's metrics in a period, of an expression too; None for no data."""
    metrics = {each["Id"]: each for each in found["Metrics"]}
    if "MetricStat" in metrics[name]:
        metric = metrics[name]["MetricStat"]["Metric"]
        # A reference to the resource, or to an attribute of it; a metric of the account has none.
        first = metric.get("Dimensions", [{"Value": {"Ref": ""}}])[0]["Value"]
        return period.get((metric["MetricName"], first.get("Ref", first.get("Fn::GetAtt", [""])[0])))
    expression = Resolver({"AccountConcurrency": ACCOUNT}).resolve(metrics[name]["Expression"])
    read = {each: value(found, each, period) for each, body in metrics.items() if "MetricStat" in body}
    known = {each: got for each, got in read.items() if got is not None}
    if "FILL" not in expression and not known:
        return None
    functions = {
        "METRICS": lambda: list(read.values()),
        "FILL": lambda values, missing: [missing if each is None else each for each in values],
        "SUM": lambda values: sum(each for each in values if each is not None),
        "MAX": lambda values: max(each for each in values if each is not None),
        "IF": lambda condition, then, otherwise: then if condition else otherwise,
    }
    names = {**dict.fromkeys(re.findall(r"\b[a-z]+\b", expression), 0), **known}
    result: float = eval(expression, {**functions, "__builtins__": {}}, names)  # noqa: S307
    return result


def fires(name: str, periods: Sequence[Period]) -> bool:
    """Return whether the alarm is in ALARM after these periods."""
    found = alarms()[name]
    (returned,) = (each["Id"] for each in found["Metrics"] if each.get("ReturnData", True))
    values = [value(found, returned, period) for period in periods]
    compared, limit = COMPARED[found["ComparisonOperator"]], float(found["Threshold"])
    missing = found["TreatMissingData"] == "breaching"
    breaching = [missing if each is None else compared(each, limit) for each in values]
    evaluated = int(found["EvaluationPeriods"])
    assert len(breaching) == evaluated
    return sum(breaching) >= int(found.get("DatapointsToAlarm", evaluated))


def error(function: str, count: float = 1) -> Period:
    return {("Errors", function): count}


SWEEPER = "OrchestratorSweeper"
SWEPT: Period = {("Invocations", SWEEPER): 1}
STEPS: Period = {("sweep_steps_failed_total", SWEEPER): 2}
CASES: list[tuple[str, list[Period], list[Period]]] = [
    ("SweeperSilent", [{}] * 5, [{}] * 4 + [SWEPT]),
    ("SweeperSilent", [{}] * 5, [{("Invocations", SWEEPER): 2}] * 5),
    ("SweeperErrors", [error(SWEEPER)] * 3 + [{}] * 2, [error(SWEEPER)] * 2 + [{}] * 3),
    ("SweeperErrors", [STEPS, {}, STEPS, {}, STEPS], [STEPS, {}, STEPS, {}, {}]),
    ("IndexBuilderErrors", [error("IndexBuilder")], [error("IndexBuilder", 0)]),
    ("BackgroundErrors", [error("Audit", 2) | error("ChunkingWorker")], [error("ScraperWorker", 2)]),
    ("AccountThrottles", [{("Throttles", ""): 10}], [{("Throttles", ""): 9}]),
    ("AccountExecutions", [{("ConcurrentExecutions", ""): 400}], [{("ConcurrentExecutions", ""): 399}]),
    (
        "ApiErrors",
        [{("5XXError", "AWS::StackName"): 6, ("Count", "AWS::StackName"): 100}],
        [{("5XXError", "AWS::StackName"): 4, ("Count", "AWS::StackName"): 5}],
    ),
    (
        "DeadLetterAge",
        [{("ApproximateAgeOfOldestMessage", "ChunkDlq"): 121}],
        [{("ApproximateAgeOfOldestMessage", "ChunkDlq"): 120}],
    ),
    (
        "CallbackAge",
        [{("ApproximateAgeOfOldestMessage", "CallbacksQueue"): 121}],
        [{("ApproximateAgeOfOldestMessage", "CallbacksQueue"): 120}],
    ),
    (
        "AuroraCapacity",
        [{("ACUUtilization", "AuroraCluster"): 91}] * 3,
        [{("ACUUtilization", "AuroraCluster"): 91}] * 2 + [{("ACUUtilization", "AuroraCluster"): 90}],
    ),
    (
        "RdsCapacity",
        [{("CPUUtilization", "RdsInstance"): 91}] * 3,
        [{("CPUUtilization", "RdsInstance"): 91}] * 2 + [{}],
    ),
    (
        "RdsStorage",
        [{("FreeStorageSpace", "RdsInstance"): 1.9 * GIB}],
        [{("FreeStorageSpace", "RdsInstance"): 2.1 * GIB}],
    ),
]


@pytest.mark.parametrize(("name", "bad", "good"), CASES)
def test_an_alarm_fires_at_its_limit_and_is_quiet_below(
    name: str, bad: list[Period], good: list[Period]
) -> None:
    assert fires(name, bad)
    assert not fires(name, good)


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES} - {"SweeperSilent"}))
def test_an_alarm_is_quiet_where_nothing_is_published(name: str) -> None:
    assert not fires(name, [{}] * int(alarms()[name]["EvaluationPeriods"]))


def test_every_alarm_but_those_of_loops_and_of_new_versions_has_a_case() -> None:
    others = {name for name in alarms() if name.endswith("LoopAlarm")} | {"ApiFunctionErrors", "WorkerErrors"}
    assert {name for name, _, _ in CASES} == alarms().keys() - others


def test_the_metric_of_failed_steps_is_one_of_ours() -> None:
    """The sweeper returns all the same, as its other steps are done: shown in test_sweep.py."""
    (metric,) = (
        each["MetricStat"]["Metric"] for each in alarms()["SweeperErrors"]["Metrics"] if each["Id"] == "steps"
    )
    assert metric["Namespace"] == NAMESPACE
    dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
    assert dimensions == {"function": {"Ref": SWEEPER}, "service": "orchestrator"}
