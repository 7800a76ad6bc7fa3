"""The benchmark's arithmetic: what is charged to the stack, and how it is compared."""

from __future__ import annotations

import pytest

from tests.perf.accounting import Snapshot, difference, own_memory
from tests.perf.compare import table
from tests.perf.figures import table as figures_table
from tests.perf.load import Sent, latencies
from tests.perf.machine import MachineUse


def test_stand_ins_are_not_charged_to_the_stack() -> None:
    before = Snapshot(
        10.0, {"host": 1.0, "stand-in:site": 1.0}, MachineUse(5.0, 1.0), {"ScraperWorker": 3}, 0.5
    )
    after = Snapshot(
        14.0,
        {"host": 2.0, "stand-in:site": 4.0, "postgres": 1.0},
        MachineUse(12.0, 1.4),
        {"ScraperWorker": 13},
        1.5,
    )

    figures = difference(before, after, jobs=100)

    assert figures["cpu_ms_per_job"] == 20.0
    assert figures["cpu_ms_by_component"] == {"host": 10.0, "postgres": 10.0}
    assert figures["stand_in_cpu_ms_per_job"] == 30.0
    assert figures["invocations_per_job"] == {"ScraperWorker": 0.1}
    assert (figures["own_cores"], figures["machine_cores_busy"]) == (0.5, 1.75)
    assert figures["load_generator_cpu_ms_per_job"] == 10.0
    assert (figures["other_cores"], figures["stolen_cores"]) == (0.25, 0.1)
    assert own_memory({"host": 30.0, "functions": 200.0, "stand-in:site": 50.0}) == 230.0


def test_latency_runs_from_before_the_request_to_the_end_of_the_job() -> None:
    sent = Sent(at={"a": 100.0, "b": 101.0})

    assert latencies(sent, {"a": 100.05, "b": 101.2}) == {"p50_ms": 200.0, "p95_ms": 200.0}
    with pytest.raises(KeyError):
        latencies(sent, {"a": 100.05})


def test_ratios_are_ours_over_the_peers_by_medians() -> None:
    def run(value: float) -> dict[str, float]:
        names = ("cpu_ms_per_job", "jobs_per_min", "p50_ms", "p95_ms", "pss_mb")
        return dict.fromkeys(names, value)

    lines = table({"indexmill": [run(1), run(50), run(10)], "floor": [run(20)]}).splitlines()

    assert lines[0] == "| | indexmill | floor |"
    assert lines[2] == "| CPU-ms/job, saturated | 10 | 20 (0.50x) |"


def test_the_table_names_each_phase_that_was_measured() -> None:
    machine = MachineUse(0.0, 0.0)
    spent = difference(Snapshot(0, {}, machine), Snapshot(10, {"postgres": 3.0}, machine), jobs=10)
    costs = {"jobs": 10, "p50_ms": 80.0, **spent, "requests_per_job": {"s3_write": 1.0}}
    result = {
        "pages": 13,
        "embeddings": "stub",
        "batch": 100,
        "ready_s": 2.5,
        "first_job": 900.0,
        "idle": {"own_cores": 0.02},
        "low": costs,
        "unchanged": {**costs, "requests_per_job": {"s3_write": 0.0}},
        "memory_pss_mb": {"own": 400.0, "processes": 30},
        "chunks": {"kept": 100, "repeated": 0},
        "load_before": 0.1,
    }

    lines = {line.split("  ")[0]: line.split() for line in figures_table(result).splitlines()}

    assert lines["CPU-ms / job: postgres"][-2:] == ["300.0", "300.0"]
    assert lines["S3 writes / job"][-2:] == ["1.0", "0.0"]
    assert "machine:" in figures_table(result)
