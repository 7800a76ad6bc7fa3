"""Metrics of functions and host, from log lines to Prometheus' text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from indexmill.platform.observability import Observability
from local.compute.log_files import LogRecord
from local.compute.pool import FunctionStats
from local.metrics import registry
from local.metrics.emf import Measurement, read
from local.metrics.exposition import expose
from local.metrics.queues import QueueDepth
from local.metrics.registry import Registry
from local.metrics.telemetry import Telemetry

SAMPLE = re.compile(r'[a-zA-Z_:][\w:]*(?:\{\w+="(?:[^"\\\n]|\\.)*"(?:,\w+="(?:[^"\\\n]|\\.)*")*\})? \S+')


def log(message: str, stream: str = "stdout", function: str = "Worker") -> LogRecord:
    return LogRecord("2026-01-31T12:00:00.123Z", function, "r1", stream, message)


def blob(*metrics: tuple[str, str], dimensions: list[list[str]] | None = None, **values: Any) -> str:
    described = [{"Name": name, "Unit": unit} for name, unit in metrics]
    directive = {"Namespace": "N", "Dimensions": dimensions or [["service"]], "Metrics": described}
    return json.dumps({"_aws": {"Timestamp": 1, "CloudWatchMetrics": [directive]}, "service": "s", **values})


def test_what_functions_emit_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    observability = Observability("worker")
    observability.count("pages_total", 2, kind="html")
    observability.seconds("fetch_duration", 0.25, kind="pdf")
    found = [each for text in capsys.readouterr().out.splitlines() for each in read(text)]
    assert found == [
        Measurement("pages_total", "Count", (("kind", "html"), ("service", "worker")), (2.0,)),
        Measurement("fetch_duration", "Seconds", (("kind", "pdf"), ("service", "worker")), (0.25,)),
    ]


def test_one_blob_may_hold_several_metrics_and_values() -> None:
    found = read(blob(("a", "Count"), ("b", "Seconds"), a=[1, 2], b=0.5))
    assert [(each.name, each.values) for each in found] == [("a", (1.0, 2.0)), ("b", (0.5,))]


@pytest.mark.parametrize(
    "line", ["", "text", '{"message": "no metrics"}', '{"_aws": 1}', '{"_aws"', blob(("gone", "Count")), "[]"]
)
def test_what_is_no_metrics_blob_is_left_alone(line: str) -> None:
    assert read(line) == []


def test_quantiles_are_of_recent_values() -> None:
    made = Registry()
    made.observe("d", (), range(1, 101))
    series = made.find("d")
    assert series is not None
    assert [series.quantile(share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert (series.count, series.total) == (100, 5050)


def test_there_is_an_end_to_new_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_SERIES", 2)
    made = Registry()
    for number in range(5):
        made.add("n", (("id", str(number)),), 1)
    made.add("n", (("id", "0"),), 1)
    assert made.dropped == 3
    assert 'n{id="0"} 2\n' in expose(made.families())


def test_names_and_values_are_made_legal() -> None:
    made = Registry()
    made.add("2nd.rate-total", (("the key", 'a "quoted"\\\nvalue'),), 1)
    made.set_gauge("share", (), float("inf"))
    assert expose(made.families()) == (
        '# TYPE _2nd_rate_total counter\n_2nd_rate_total{the_key="a \\"quoted\\"\\\\\\nvalue"} 1\n'
        "# TYPE share gauge\nshare +Inf\n"
    )


class Host:
    def stats(self) -> Mapping[str, FunctionStats]:
        return {"Worker": FunctionStats(environments=2, invocations=7, errors=1, throttles=3, cold_starts=2)}


class Depths:
    async def read(self) -> dict[str, QueueDepth]:
        return {"Queue": QueueDepth(5, 1, 0, 12.5), "Elsewhere": QueueDepth(1, 0, 0)}


async def test_logs_host_and_queues_come_together() -> None:
    telemetry = Telemetry()
    telemetry.on_log(log(blob(("failed_total", "Count"), failed_total=[1.0])))
    telemetry.on_log(log(blob(("failed_total", "Count"), failed_total=[2.0])))
    telemetry.on_log(log(blob(("took", "Seconds"), took=[0.5])))
    report = "REPORT RequestId: r1\tDuration: 250.00 ms\tBilled Duration: 250 ms\tMemory Size: 512 MB\t"
    telemetry.on_log(log(report + "Max Memory Used: 64 MB\tInit Duration: 100.00 ms\t", "platform"))
    telemetry.on_log(log("REPORT of a function's own"))
    telemetry.watch(Host(), Depths())
    text = await telemetry.exposition()
    lines = text.splitlines()
    expected = [
        'failed_total{service="s"} 3',
        'took_sum{service="s"} 0.5',
        'lambda_duration_seconds{function="Worker",quantile="0.95"} 0.25',
        'lambda_init_duration_seconds_count{function="Worker"} 1',
        'lambda_invocations_total{function="Worker"} 7',
        'lambda_errors_total{function="Worker"} 1',
        'lambda_throttles_total{function="Worker"} 3',
        "local_metrics_dropped_total 0",
        'lambda_cold_starts_total{function="Worker"} 2',
        'sqs_messages_visible{queue="Queue"} 5',
        'sqs_oldest_message_age_seconds{queue="Queue"} 12.5',
    ]
    assert [line for line in expected if line not in lines] == []
    assert not [line for line in lines if "age_seconds" in line and "Elsewhere" in line], "unknown, not zero"
    assert [line for line in lines if not line.startswith("# ") and not SAMPLE.fullmatch(line)] == []
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    summary = await telemetry.summary()
    assert summary["queues"]["Queue"] == {"visible": 5, "in_flight": 1, "delayed": 0, "oldest_s": 12.5}
    assert summary["queues"]["Elsewhere"]["oldest_s"] is None
    assert summary["durations"]["Worker"]["p50_ms"] == 250.0
    assert {each["name"]: each["total"] for each in summary["metrics"]} == {"failed_total": 3, "took": 0.5}


async def test_before_anything_runs_there_is_nothing_to_tell() -> None:
    telemetry = Telemetry()
    assert "lambda_" not in await telemetry.exposition()
    assert await telemetry.summary() == {"queues": {}, "durations": {}, "metrics": []}


async def test_values_beyond_the_limit_of_series_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_SERIES", 2)
    telemetry = Telemetry()
    for at in range(5):
        telemetry.on_log(log(blob(("n", "Count"), n=[1.0]).replace('"s"', f'"s{at}"')))
    # There must be room for the series of the count itself.
    monkeypatch.setattr(registry, "MOST_SERIES", 9)
    assert "local_metrics_dropped_total 3" in (await telemetry.exposition()).splitlines()
