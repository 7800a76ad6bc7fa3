"""The simulation of a steady load, on cases whose outcome can be computed by hand."""

from __future__ import annotations

import pytest

from tests.perf.capacity import calibrate, compare
from tests.perf.limits import RATES, limits, report
from tests.perf.simulation import STEPS, Machine, Work, poisson, simulate

SAME = dict.fromkeys(("submit", "scrape", "chunk", "embed", "results"), Work(0.010, 0.0, 0.002))


def test_one_job_takes_its_cpu_and_its_waits_one_after_the_other() -> None:
    outcome = simulate(SAME, Machine(cores=2), [1.0])
    assert outcome.latency(0.5) == pytest.approx(len(STEPS) * 0.012)
    assert outcome.invocations == {"submit": 1, "scrape": 1, "chunk": 1, "embed": 1, "results": 3}
    assert outcome.cpu_s == pytest.approx(0.07)


def test_others_slow_a_job_only_when_the_cores_are_fewer_than_what_runs() -> None:
    alone, among = (
        simulate(SAME, Machine(cores=1, others=others), [0.0]).latency(0.5) for others in (0.0, 1.0)
    )
    assert [alone, among] == pytest.approx([0.084, 0.154])
    assert simulate(SAME, Machine(cores=2, others=1.0), [0.0]).latency(0.5) == pytest.approx(alone)


def test_cpu_after_the_results_are_sent_delays_no_job_but_counts() -> None:
    outcome = simulate(SAME, Machine(cores=8, critical=0.5), [0.0])
    assert outcome.latency(0.5) == pytest.approx(len(STEPS) * 0.007)
    assert outcome.cpu_s == pytest.approx(0.07)


def test_messages_that_wait_share_an_invocation() -> None:
    outcome = simulate(SAME, Machine(cores=1, at_once=1), [0.0] * 100)
    assert len(outcome.latencies_s) == 100
    assert outcome.invocations["scrape"] <= 40
    assert outcome.cpu_s < 7 * 0.010 * 100 / 2


def test_arrivals_are_random_and_repeatable() -> None:
    moments = poisson(10, 100)
    assert moments == poisson(10, 100) == sorted(moments)
    assert 850 < len(moments) < 1_150


def test_a_steady_load_is_predicted_from_the_two_others() -> None:
    functions = ("ScraperWorker", "ChunkingWorker", "EmbeddingWorker")

    def phase(cpu_ms: float, batch: float) -> dict[str, object]:
        names = (*functions, "OrchestratorResults", "OrchestratorApi")
        calls = dict.fromkeys(functions, 1 / batch) | {"OrchestratorResults": 3 / batch}
        return {
            "p50_ms": 80.0,
            "cpu_ms_by_component": {f"function:{name}": cpu_ms for name in names} | {"postgres": 2 * cpu_ms},
            "stand_in_cpu_ms_per_job": 0.0,
            "invocations_per_job": calls,
        }

    low, full = phase(10.0, 1), phase(2.8, 10)
    found = calibrate(low, full)
    cpu = sum(work.cpu(1) * (3 if name == "results" else 1) for name, work in found.works.items())
    assert cpu == pytest.approx(0.07)
    assert found.works["scrape"].fixed == pytest.approx(0.008)
    assert found.works["scrape"].each == pytest.approx(0.002)
    assert simulate(found.works, Machine(8, critical=found.critical), [0.0]).latency(0.5) == pytest.approx(
        0.08
    )

    steady = low | {
        "p95_ms": 90.0,
        "cpu_ms_per_job": 70.0,
        "jobs_per_s": 1.0,
        "other_cores": 0.0,
        "stolen_cores": 0.0,
        "load_generator_cpu_ms_per_job": 1.0,
    }
    moments = [float(second) for second in range(20)]
    rows = compare({"low": low, "saturation": full, "steady": steady, "moments": moments})
    assert {row[0]: row[3] for row in rows}["latency p50 ms"] == "+0%"


def test_demand_grows_with_the_load_and_something_saturates_in_the_end() -> None:
    for limit in limits():
        uses = [limit.use(rate) for rate in RATES]
        assert uses == sorted(uses), limit
    lines = list(report())
    assert sum("above a limit" in line for line in lines) == len(RATES)
    assert "nothing" not in lines[-1]
