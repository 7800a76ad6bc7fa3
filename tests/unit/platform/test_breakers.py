"""Three failures, thirty seconds of peace, one probe; seen by every process."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.platform.breakers import EMBEDDING, NAMES, Breaker, BreakerOpen, BreakerState
from indexmill.testing.breakers import InMemoryBreakers
from indexmill.testing.clock import FrozenClock

AWAY = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away")


class Process:
    """One process's breaker; `calls` counts what got through."""

    def __init__(self, states: InMemoryBreakers, clock: FrozenClock) -> None:
        self.breaker = Breaker(
            EMBEDDING,
            ErrorCode.EMBEDDING_UNAVAILABLE,
            [ErrorCode.EMBEDDING_UNAVAILABLE, ErrorCode.OPENAI_RATE_LIMIT],
            states,
            clock,
        )
        self.calls = 0

    def call(self, error: Exception | None = None) -> str:
        """Return what a call came to: ok, error, or open with its wait."""

        def work() -> None:
            self.calls += 1
            if error is not None:
                raise error

        try:
            self.breaker.call(work)
        except BreakerOpen as refused:
            return f"open {refused.wait_s:g}"
        except (TransientError, PermanentError):
            return "error"
        return "ok"


class World:
    """Shared states, and processes that come when they are asked for."""

    def __init__(self) -> None:
        self.states, self.clock = InMemoryBreakers(), FrozenClock()
        self.one, self.two = self.process(), self.process()

    def process(self) -> Process:
        return Process(self.states, self.clock)

    def open(self) -> None:
        assert [self.one.call(AWAY) for _ in range(3)] == ["error", "error", "open 30"]

    def phase(self) -> str:
        return self.states.read()[EMBEDDING].phase(self.clock.now().timestamp())


@pytest.fixture
def world() -> World:
    return World()


def test_every_breaker_is_listed_and_closed_at_first(world: World) -> None:
    assert world.states.read() == dict.fromkeys(("embedding", "index"), BreakerState())
    assert NAMES == ("embedding", "index")
    assert world.phase() == "closed"


def test_three_failures_in_a_row_open_it(world: World) -> None:
    world.open()
    assert world.phase() == "open"
    world.clock.tick(10)
    assert world.one.call() == "open 20"
    assert world.one.calls == 3


def test_a_success_in_between_starts_anew(world: World) -> None:
    for _ in range(3):
        assert [world.one.call(AWAY), world.one.call(AWAY), world.one.call()] == ["error", "error", "ok"]


def test_failures_far_apart_are_no_row(world: World) -> None:
    for _ in range(5):
        assert world.one.call(AWAY) == "error"
        world.clock.tick(61)


@pytest.mark.parametrize(
    "error",
    [
        PermanentError(ErrorCode.EMBEDDING_REJECTED, "400"),
        PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "long"),
        TransientError(ErrorCode.EMBEDDING_INVALID, "nan"),
    ],
)
def test_what_a_document_causes_never_counts(world: World, error: Exception) -> None:
    assert [world.one.call(error) for _ in range(5)] == ["error"] * 5
    assert world.phase() == "closed"


@pytest.mark.fault("F53")
def test_a_new_process_sees_what_another_opened(world: World) -> None:
    world.open()
    assert world.process().call() == "open 30"


def test_a_process_that_trusted_it_learns_by_its_first_failure(world: World) -> None:
    assert world.two.call() == "ok"
    world.open()
    assert world.two.call(AWAY) == "open 30"
    assert world.two.call() == "open 30"
    assert world.two.calls == 2


def test_failures_of_several_processes_add_up(world: World) -> None:
    assert [world.one.call(AWAY), world.two.call(AWAY)] == ["error", "error"]
    assert world.process().call(AWAY) == "open 30"


def test_one_probe_and_no_more(world: World) -> None:
    world.open()
    world.clock.tick(30)
    assert world.phase() == "half_open"
    seen: list[str] = []

    def probe() -> None:
        seen.extend([world.two.call(), world.process().call()])

    world.one.breaker.call(probe)
    assert seen == ["open 5", "open 5"]
    assert world.phase() == "closed"
    assert world.two.call() == "ok"


def test_a_probe_that_fails_opens_it_again(world: World) -> None:
    world.open()
    world.clock.tick(30)
    assert world.two.call(AWAY) == "open 30"
    assert world.one.call() == "open 30"
    world.clock.tick(30)
    assert world.one.call() == "ok"
    assert world.phase() == "closed"


def test_a_probe_that_never_ended_gives_its_turn_away(world: World) -> None:
    world.open()
    world.clock.tick(30)

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        world.one.breaker.call(die)
    assert world.two.call() == "open 5"
    world.clock.tick(60)
    assert world.two.call() == "ok"


def test_a_late_success_closes_nothing_that_others_opened(world: World) -> None:
    assert world.two.call(AWAY) == "error"

    def slow() -> None:
        assert [world.one.call(AWAY) for _ in range(2)] == ["error", "open 30"]

    world.two.breaker.call(slow)
    assert world.phase() == "open"


def test_a_pause_that_was_asked_for_is_kept(world: World) -> None:
    limit = TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down", retry_after=3600)
    assert [world.one.call(limit) for _ in range(3)] == ["error", "error", "open 3600"]


def test_success_asks_nobody_and_writes_nothing(world: World) -> None:
    for _ in range(100):
        assert world.one.call() == "ok"
        world.clock.tick(1)
    assert (world.states.reads, world.states.writes) == (1, 0)
    world.clock.tick(61)
    world.one.call()
    assert world.states.reads == 2


def test_without_the_shared_state_a_process_counts_alone(world: World) -> None:
    world.states.away = True
    world.open()
    assert world.one.call() == "open 30"
    world.clock.tick(30)
    assert world.one.call() == "ok"
    assert world.one.call() == "ok"
