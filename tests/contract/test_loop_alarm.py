"""The alarm on the pipeline's own loop: it is quiet in traffic and fires when one message goes round."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from indexmill.contracts.pipeline import STAGES
from indexmill.platform.observability import NAMESPACE
from tests.contract.test_admitted_count import NAME
from tests.support.function_env import template
from tests.support.repository import ROOT

Period = dict[str, float]
"""Sums of one period by the id of the metric; what published nothing is left out."""
WORKERS: Final = ("ScraperWorker", "ChunkingWorker", "EmbeddingWorker")


def alarm() -> dict[str, Any]:
    found: dict[str, Any] = template()["Resources"]["PipelineLoopAlarm"]["Properties"]
    return found


def value(name: str, period: Period) -> float | None:
    """Evaluate a metric of the alarm in one period, as CloudWatch does: arithmetic, SUM and FILL."""
    metric = {each["Id"]: each for each in alarm()["Metrics"]}[name]
    if "MetricStat" in metric:
        return period.get(name)
    expression = metric["Expression"]
    names = set(re.findall(r"\b[a-z]\w*", expression))
    values = {each: value(each, period) for each in names}

    def fill(series: list[float | None] | float | None, missing: float) -> list[float]:
        wanted = series if isinstance(series, list) else [series]
        return [missing if each is None else each for each in wanted]

    result: float = eval(expression, {"SUM": sum, "FILL": fill, "__builtins__": {}}, values)  # noqa: S307
    return result


def fires(*periods: Period) -> bool:
    """Return whether the alarm is in ALARM after one of these periods."""
    found = alarm()
    assert (found["Threshold"], found["ComparisonOperator"]) == (0, "GreaterThanThreshold")
    breaches = [(value("found", period) or 0) > 0 for period in periods]
    at_once = int(found["EvaluationPeriods"])
    windows = (breaches[max(0, end - at_once) : end] for end in range(1, len(breaches) + 1))
    return any(sum(window) >= int(found["DatapointsToAlarm"]) for window in windows)


def traffic(jobs: float, each_worker: float, results: float) -> Period:
    """Return a period in which so many jobs are submitted, with their invocations per job."""
    invocations = {f"m{name}": each_worker * jobs for name in WORKERS}
    return {"aOrchestratorApi": jobs, "mOrchestratorResults": results * jobs, **invocations}


def measured() -> list[tuple[float, float]]:
    """Return the invocations per job of each worker and of results, one at a time and saturated."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    row = re.search(r"\| invocations / job: submit, each worker, results \|(.+)\|", page)
    assert row
    alone, saturated, _ = ([float(each) for each in cell.split(",")] for cell in row[1].split("|"))
    return [(alone[1], alone[2]), (saturated[1], saturated[2])]


LOOPING: Final[Period] = {"mOrchestratorResults": 600, "mScraperWorker": 600}
"""One message that goes round twice a second; on a laptop a job, which is three rounds, takes 82 ms."""


def test_normal_is_an_invocation_and_its_result_for_each_stage() -> None:
    normal = 2 * len(STAGES)
    (alone, _) = measured()
    assert len(STAGES) * alone[0] + alone[1] == normal
    assert {each["Id"]: each for each in alarm()["Metrics"]}["found"]["Expression"] == (
        f"invocations - {3 * normal} * (admitted + 20)"
    )


def test_it_is_quiet_without_work() -> None:
    assert not fires(*[{}] * 6)
    assert not fires(*[dict.fromkeys(("aOrchestratorSweeper", "mOrchestratorDeadLetters"), 0.0)] * 6)


@pytest.mark.parametrize("jobs", [1, 50, 15_000])
def test_it_is_quiet_in_traffic_as_the_laptop_measures_it(jobs: int) -> None:
    for each_worker, results in measured():
        assert not fires(*[traffic(jobs, each_worker, results)] * 6)
        # Every stage of every job is tried twice, each time in an invocation of its own.
        assert not fires(*[traffic(jobs, 2 * each_worker, results)] * 6)


def test_it_is_quiet_when_a_burst_is_admitted_in_one_period_and_done_in_the_next() -> None:
    ((each_worker, results), _) = measured()
    window = float(template()["Parameters"]["DispatchWindow"]["Default"])
    done = {**traffic(window, each_worker, results), "aOrchestratorApi": 0.0}
    assert value("found", done) > 0  # type: ignore[operator]
    assert not fires({"aOrchestratorApi": window}, done, {}, {"aOrchestratorApi": window}, done, {})


@pytest.mark.parametrize("jobs", [0, 1, 10])
def test_it_fires_when_one_message_goes_round_at_low_traffic(jobs: int) -> None:
    ((each_worker, results), _) = measured()
    period = traffic(jobs, each_worker, results)
    looping = {name: period.get(name, 0) + LOOPING.get(name, 0) for name in {*period, *LOOPING}}
    assert not fires(period, looping, period)
    assert fires(period, looping, looping)


def test_it_fires_when_a_loop_is_all_that_happens_in_a_large_stack() -> None:
    """The number of jobs that may be in flight hides no loop."""
    assert fires(LOOPING, LOOPING)


def test_it_does_not_see_what_goes_round_less_often_than_the_page_says() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    unseen = re.search(r"loop of less than ([\d,]+)\s+invocations in five minutes", page)
    assert unseen
    least = float(unseen[1].replace(",", ""))
    assert not fires(*[{"mScraperWorker": least}] * 3)
    assert fires(*[{"mScraperWorker": least + 1}] * 3)


def test_it_reads_the_metric_that_the_functions_write_for_each_that_admits() -> None:
    read = [
        each["MetricStat"]["Metric"] for each in alarm()["Metrics"] if each["Id"].startswith("aOrchestrator")
    ]
    named = [{each["Name"]: each["Value"] for each in metric["Dimensions"]} for metric in read]
    assert {(metric["Namespace"], metric["MetricName"]) for metric in read} == {(NAMESPACE, NAME)}
    assert {dimensions["service"] for dimensions in named} == {"orchestrator"}
    sending = {
        name
        for name, found in template()["Resources"].items()
        if name.startswith("Orchestrator") and found["Type"] == "AWS::Serverless::Function"
        if "SCRAPE_QUEUE_URL" in found["Properties"]["Environment"]["Variables"]
    }
    assert {dimensions["function"]["Ref"] for dimensions in named} == sending


def test_its_metrics_fit() -> None:
    """CloudWatch takes ten metrics in one alarm."""
    assert sum("MetricStat" in each for each in alarm()["Metrics"]) <= 10
