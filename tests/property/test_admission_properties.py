"""Whatever callers do: quotas and the window hold, and every pending job starts in bounded time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexmill.contracts.identity import Usage
from indexmill.orchestrator.admission.admit import (
    MULTIPLIERS,
    NEGLECTED,
    SECONDS_PER_POINT,
    Quota,
    choose,
    effective_priority,
)
from indexmill.orchestrator.store.admission import MOST, JobLimits
from indexmill.orchestrator.store.rows import CallerQueue, Candidate, GlobalUsage

START = datetime(2026, 3, 1, tzinfo=UTC)
QUOTAS = {"free": Quota(max_active=1), "pro": Quota(max_active=3), "enterprise": Quota(max_active=20)}
STEP = timedelta(seconds=6)
TIERS = st.sampled_from(sorted(QUOTAS))
PRIORITIES = st.integers(0, 100)


@dataclass
class AdmissionSimulation:
    """Jobs of many callers; at each step one in flight ends."""

    window: int
    now: datetime = START
    pending: list[tuple[str, str, Candidate]] = field(default_factory=list)
    active: list[tuple[str, str]] = field(default_factory=list)
    """Caller and job, the one that started first in front."""
    starts: dict[str, list[datetime]] = field(default_factory=dict)
    made: int = 0

    def submit(self, caller: str, tier: str, priority: int) -> str:
        """Add a pending job."""
        self.made += 1
        job_id = f"{self.made:06}"
        self.pending.append((caller, tier, Candidate(job_id, priority, self.now)))
        return job_id

    def step(self) -> list[str]:
        """Let one job end and others start; returns which did."""
        self.now += STEP
        if self.active:
            self.active.pop(0)
        limits = JobLimits(QUOTAS, self.window)
        chosen = choose(self._lines(), limits, GlobalUsage(self.now, len(self.active))).start
        callers = {job.job_id: caller for caller, _, job in self.pending}
        for job_id in chosen:
            self.active.append((callers[job_id], job_id))
            self.starts.setdefault(callers[job_id], []).append(self.now)
        self.pending = [each for each in self.pending if each[2].job_id not in chosen]
        return chosen

    def _lines(self) -> list[CallerQueue]:
        found = []
        for caller in {caller for caller, _, _ in self.pending}:
            own = [(tier, job) for name, tier, job in self.pending if name == caller]
            hour = [at for at in self.starts.get(caller, []) if at > self.now - timedelta(hours=1)]
            in_flight = sum(name == caller for name, _ in self.active)
            usage = Usage(caller, own[0][0], in_flight, len(hour), newest=max(hour, default=None))
            found.append(CallerQueue(usage, sorted((job for _, job in own), key=turn)))
        return found


def turn(job: Candidate) -> tuple[float, str]:
    """The order within a caller, as stores keep it."""
    return job.since.timestamp() - SECONDS_PER_POINT * job.priority, job.job_id


@given(
    queues=st.lists(st.tuples(TIERS, st.integers(0, 25), st.lists(PRIORITIES, max_size=30)), max_size=8),
    window=st.integers(1, 60),
    active=st.integers(0, 60),
)
def test_neither_quota_nor_window_is_exceeded_and_no_place_stays_free(
    queues: list[tuple[str, int, list[int]]], window: int, active: int
) -> None:
    made = [
        CallerQueue(
            Usage(f"c{at}", tier, used),
            [Candidate(f"{at}-{n:03}", priority, START) for n, priority in enumerate(priorities)],
        )
        for at, (tier, used, priorities) in enumerate(queues)
    ]
    started = choose(made, JobLimits(QUOTAS, window), GlobalUsage(START, active)).start
    by_caller = Counter(job_id.partition("-")[0] for job_id in started)
    slots = 0
    for queue in made:
        most = QUOTAS[queue.usage.tier].max_active or MOST
        free = min(max(0, most - queue.usage.active), len(queue.jobs))
        slots += free
        started_here = by_caller[queue.usage.caller_id]
        assert started_here <= free
        own = [each for each in started if each.startswith(f"{queue.usage.caller_id}-")]
        assert own == [job.job_id for job in queue.jobs[:started_here]]
    assert len(started) == min(slots, max(0, window - active))


@settings(max_examples=25, deadline=None)
@given(
    tier=TIERS,
    priority=PRIORITIES,
    before=st.integers(0, 3),
    rivals=st.lists(TIERS, min_size=1, max_size=6),
    window=st.integers(1, 8),
)
@example(tier="free", priority=50, before=0, rivals=["enterprise", "enterprise"], window=1)
def test_every_job_starts_in_bounded_time_whatever_others_submit(
    tier: str, priority: int, before: int, rivals: list[str], window: int
) -> None:
    """Rivals with the highest priority never run out of jobs; nor does the caller, of newer ones."""
    world = AdmissionSimulation(window)
    for at, rival in enumerate(rivals):
        for _ in range(window + 2):
            world.submit(f"rival-{at}", rival, 100)
    for _ in range(5):
        world.step()
    for _ in range(before):
        world.submit("ann", tier, 100)
    job_id = world.submit("ann", tier, priority)
    own_lead = timedelta(seconds=SECONDS_PER_POINT * (100 - priority))
    submitted = world.now
    # Each own job waits its minute of neglect, and then at most a turn of all other neglected callers.
    turns = 1 + before + int(own_lead / NEGLECTED) + 1
    bound = turns * (NEGLECTED + (len(rivals) + window + 1) * STEP) + own_lead
    while job_id not in world.step():
        assert world.now - submitted <= bound
        for at, rival in enumerate(rivals):
            world.submit(f"rival-{at}", rival, 100)
        if (world.now - submitted) % timedelta(minutes=1) < STEP:
            world.submit("ann", tier, 100)


@given(PRIORITIES, st.sampled_from(sorted(MULTIPLIERS)), st.integers(0, 500), st.integers(0, 10_000))
def test_effective_priority_is_bounded_grows_with_waiting_and_falls_with_use(
    priority: int, tier: str, in_hour: int, seconds: int
) -> None:
    waited = timedelta(seconds=seconds)
    now = effective_priority(priority, tier, in_hour, waited)
    assert 0 <= now <= 100
    assert effective_priority(priority, tier, in_hour, waited + timedelta(minutes=1)) >= now
    assert effective_priority(priority, tier, in_hour + 1, waited) <= now
    assert effective_priority(min(100, priority + 1), tier, in_hour, waited) >= now
