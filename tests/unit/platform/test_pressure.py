"""Backpressure: who is refused at which load, and what a worker notes."""

from __future__ import annotations

import json

import pytest

from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext
from indexmill.platform.limits.enforcer import Backpressure
from indexmill.platform.limits.policy import PressureSettings
from indexmill.platform.limits.store import AgeNotes, Load
from indexmill.platform.observability import Observability
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryQueueAges

ROUTE = ("POST", "/orchestrator/jobs")
CALLERS = {
    "free": CallerContext("f"),
    "pro": CallerContext("p", tier="premium"),
    "enterprise": CallerContext("e", tier="enterprise"),
    "internal": CallerContext("i", internal=True),
}


class Source:
    def __init__(self) -> None:
        self.now: Load | None = Load(0)
        self.reads = 0

    def load(self) -> Load:
        self.reads += 1
        if self.now is None:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue cannot be counted.")
        return self.now


class Harness:
    def __init__(self) -> None:
        self.source, self.clock = Source(), FrozenClock()
        settings = PressureSettings(max_queue_depth=100, max_queue_age_seconds=200, state_table="table")
        self.observability = Observability("orchestrator", level="CRITICAL")
        self.check = Backpressure(self.source.load, settings, self.clock, self.observability, routes=[ROUTE])

    def refused(self, load: Load | None) -> set[str]:
        """Return the tiers that are refused at a load."""
        self.clock.tick(6)
        self.source.now = load
        return {tier for tier, ctx in CALLERS.items() if self._is_refused(ctx)}

    def _is_refused(self, ctx: CallerContext) -> bool:
        try:
            self.check(ctx, *ROUTE)
        except CallerError as error:
            return (error.code, error.http_status, error.retry_after) == ("queue_saturated", 429, 30)
        return False


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.mark.fault("F74")
@pytest.mark.shows("R101")
@pytest.mark.parametrize(
    ("load", "refused"),
    [
        (Load(60), set()),
        (Load(61), {"free"}),
        (Load(80), {"free"}),
        (Load(81), {"free", "pro"}),
        (Load(100), {"free", "pro"}),
        (Load(101), set(CALLERS)),
        (Load(1, 120.0), set()),
        (Load(1, 120.5), {"free"}),
        (Load(1, 161.0), {"free", "pro"}),
        (Load(1, 201.0), set(CALLERS)),
    ],
)
def test_lower_tiers_are_refused_first(harness: Harness, load: Load, refused: set[str]) -> None:
    assert harness.refused(load) == refused


@pytest.mark.shows("R098")
def test_the_answer_has_the_depth(harness: Harness) -> None:
    harness.source.now = Load(12_345)
    with pytest.raises(CallerError) as caught:
        harness.check(CALLERS["enterprise"], *ROUTE)
    assert caught.value.message == "Queue saturated (12345 pending). Try again shortly."


def test_requests_that_add_no_work_are_never_refused(harness: Harness) -> None:
    harness.source.now = Load(10_000)
    harness.check(CALLERS["free"], "GET", "/orchestrator/jobs")
    harness.check(CALLERS["free"], "POST", "/orchestrator/jobs/{job_id}/cancel")
    assert harness.source.reads == 0


@pytest.mark.fault("F74")
def test_the_load_is_read_once_in_five_seconds(harness: Harness) -> None:
    harness.source.now = Load(0)
    harness.check(CALLERS["free"], *ROUTE)
    harness.source.now = Load(10_000)
    harness.clock.tick(4.9)
    harness.check(CALLERS["free"], *ROUTE)
    harness.clock.tick(0.2)
    with pytest.raises(CallerError):
        harness.check(CALLERS["free"], *ROUTE)
    assert harness.source.reads == 2


@pytest.mark.fault("F74")
def test_while_the_load_is_unknown_nothing_is_refused_and_that_is_counted(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness.refused(Load(10_000)) == set(CALLERS)
    assert harness.refused(None) == set()
    # It is not asked again at once: its time-outs would be added to every request.
    assert harness.source.reads == 2
    harness.observability.flush()
    assert "queue_depth_unavailable_total" in capsys.readouterr().out
    assert harness.refused(Load(10_000)) == set(CALLERS)


@pytest.mark.shows("R099")
def test_each_refusal_is_counted_by_tier_with_its_request(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process may get no further request, so nothing is kept for a later one."""
    harness.source.now = Load(10_000)
    for name in ("free", "free", "pro"):
        with pytest.raises(CallerError):
            harness.check(CALLERS[name], *ROUTE)
        harness.observability.flush()
        (line,) = [each for each in capsys.readouterr().out.splitlines() if "queue_saturated_total" in each]
        found = json.loads(line)
        assert (found["queue_saturated_total"], found["tier"]) == ([1.0], name)


class Worker:
    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.ages = InMemoryQueueAges(self.clock)
        self.notes = AgeNotes("scraping", self.ages, self.clock)

    def see(self, *ages_s: float) -> float:
        now = self.clock.now().timestamp()
        self.notes.see([round((now - age_s) * 1000) for age_s in ages_s])
        return self.ages.oldest("scraping")


def test_young_messages_are_not_noted() -> None:
    worker = Worker()
    assert worker.see() == 0.0
    assert worker.see(0.1, 9.9, -5.0) == 0.0
    assert worker.ages.client.items == {}


def test_the_oldest_of_a_batch_is_noted_every_five_seconds() -> None:
    worker = Worker()
    assert worker.see(3, 42, 12) == pytest.approx(42, abs=0.01)
    worker.clock.tick(4.9)
    assert worker.see(50) == pytest.approx(42, abs=0.01)
    worker.clock.tick(0.2)
    assert worker.see(50) == pytest.approx(50, abs=0.01)


def test_a_note_that_is_not_renewed_is_forgotten() -> None:
    worker = Worker()
    worker.see(42)
    worker.clock.tick(61)
    assert worker.ages.oldest("scraping") == 0.0
