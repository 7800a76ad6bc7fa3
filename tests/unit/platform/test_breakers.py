"""Breakers open after 3 consecutive failures for 30 s, then admit one half-open probe, in all processes."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import BreakerOpen, ErrorCode, PermanentError, Refused, TransientError
from indexmill.platform.breakers import EMBEDDING, EMBEDDING_QUERY, NAMES, Breaker, BreakerState
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryBreakers

UNAVAILABLE = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away")


class Process:
    """One process's breaker; `calls` counts what got through."""

    def __init__(self, states: InMemoryBreakers, clock: FrozenClock, name: str = EMBEDDING) -> None:
        self.breaker = Breaker(
            name,
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


class Harness:
    """Shared states, and processes that come when they are asked for."""

    def __init__(self) -> None:
        self.states, self.clock = InMemoryBreakers(), FrozenClock()
        self.one, self.two = self.process(), self.process()

    def process(self) -> Process:
        return Process(self.states, self.clock)

    def query(self) -> Process:
        """Return a process that embeds questions."""
        return Process(self.states, self.clock, EMBEDDING_QUERY)

    def open(self) -> None:
        assert [self.one.call(UNAVAILABLE) for _ in range(3)] == ["error", "error", "open 30"]

    def phase(self) -> str:
        return self.states.read()[EMBEDDING].phase(self.clock.now().timestamp())


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_every_breaker_is_listed_and_closed_at_first(harness: Harness) -> None:
    assert harness.states.read() == dict.fromkeys(NAMES, BreakerState())
    assert NAMES == ("embedding", "embedding_query", "index")
    assert harness.phase() == "closed"


def test_three_failures_in_a_row_open_it(harness: Harness) -> None:
    harness.open()
    assert harness.phase() == "open"
    harness.clock.tick(10)
    assert harness.one.call() == "open 20"
    assert harness.one.calls == 3


def test_a_success_in_between_resets_the_count(harness: Harness) -> None:
    for _ in range(3):
        assert [harness.one.call(UNAVAILABLE), harness.one.call(UNAVAILABLE), harness.one.call()] == [
            "error",
            "error",
            "ok",
        ]


def test_failures_far_apart_are_no_row(harness: Harness) -> None:
    for _ in range(5):
        assert harness.one.call(UNAVAILABLE) == "error"
        harness.clock.tick(61)


@pytest.mark.parametrize(
    "error",
    [
        PermanentError(ErrorCode.EMBEDDING_REJECTED, "400"),
        PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "long"),
        TransientError(ErrorCode.EMBEDDING_INVALID, "nan"),
    ],
)
def test_what_a_document_causes_never_counts(harness: Harness, error: Exception) -> None:
    assert [harness.one.call(error) for _ in range(5)] == ["error"] * 5
    assert harness.phase() == "closed"


@pytest.mark.fault("F53")
def test_a_new_process_sees_what_another_opened(harness: Harness) -> None:
    harness.open()
    assert harness.process().call() == "open 30"


def test_a_process_that_trusted_it_learns_by_its_first_failure(harness: Harness) -> None:
    assert harness.two.call() == "ok"
    harness.open()
    assert harness.two.call(UNAVAILABLE) == "open 30"
    assert harness.two.call() == "open 30"
    assert harness.two.calls == 2


def test_failures_of_several_processes_add_up(harness: Harness) -> None:
    assert [harness.one.call(UNAVAILABLE), harness.two.call(UNAVAILABLE)] == ["error", "error"]
    assert harness.process().call(UNAVAILABLE) == "open 30"


def test_one_probe_and_no_more(harness: Harness) -> None:
    harness.open()
    harness.clock.tick(30)
    assert harness.phase() == "half_open"
    seen: list[str] = []

    def probe() -> None:
        seen.extend([harness.two.call(), harness.process().call()])

    harness.one.breaker.call(probe)
    assert seen == ["open 5", "open 5"]
    assert harness.phase() == "closed"
    assert harness.two.call() == "ok"


def test_a_probe_that_fails_opens_it_again(harness: Harness) -> None:
    harness.open()
    harness.clock.tick(30)
    assert harness.two.call(UNAVAILABLE) == "open 30"
    assert harness.one.call() == "open 30"
    harness.clock.tick(30)
    assert harness.one.call() == "ok"
    assert harness.phase() == "closed"


def test_a_probe_that_never_ended_gives_its_turn_away(harness: Harness) -> None:
    harness.open()
    harness.clock.tick(30)

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        harness.one.breaker.call(die)
    assert harness.two.call() == "open 5"
    harness.clock.tick(60)
    assert harness.two.call() == "ok"


def test_a_late_success_closes_nothing_that_others_opened(harness: Harness) -> None:
    assert harness.two.call(UNAVAILABLE) == "error"

    def slow() -> None:
        assert [harness.one.call(UNAVAILABLE) for _ in range(2)] == ["error", "open 30"]

    harness.two.breaker.call(slow)
    assert harness.phase() == "open"


def test_seeing_it_closed_again_resets_no_failures_of_others(harness: Harness) -> None:
    harness.open()
    assert harness.two.call() == "open 30"
    harness.clock.tick(30)
    assert [harness.one.call(), harness.one.call(UNAVAILABLE), harness.one.call(UNAVAILABLE)] == [
        "ok",
        "error",
        "error",
    ]
    assert harness.two.call(UNAVAILABLE) == "open 30"


def test_a_defect_says_nothing_about_the_dependency(harness: Harness) -> None:
    assert harness.one.call(UNAVAILABLE) == "error"
    with pytest.raises(ZeroDivisionError):
        harness.one.call(ZeroDivisionError())
    assert [harness.one.call(UNAVAILABLE), harness.one.call(UNAVAILABLE)] == ["error", "open 30"]


def test_a_probe_that_ends_in_a_defect_admits_no_second_one(harness: Harness) -> None:
    harness.open()
    harness.clock.tick(30)
    with pytest.raises(ZeroDivisionError):
        harness.one.call(ZeroDivisionError())
    assert [harness.one.call(), harness.two.call()] == ["open 5", "open 5"]


def test_a_pause_that_was_asked_for_is_kept(harness: Harness) -> None:
    limit = TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down", retry_after=3600)
    assert [harness.one.call(limit) for _ in range(3)] == ["error", "error", "open 3600"]


def test_success_reads_and_writes_no_shared_state(harness: Harness) -> None:
    for _ in range(100):
        assert harness.one.call() == "ok"
        harness.clock.tick(1)
    assert (harness.states.reads, harness.states.writes) == (1, 0)
    harness.clock.tick(61)
    harness.one.call()
    assert harness.states.reads == 2


def test_without_the_shared_state_a_process_counts_alone(harness: Harness) -> None:
    harness.states.unavailable = True
    harness.open()
    assert harness.one.call() == "open 30"
    harness.clock.tick(30)
    assert harness.one.call() == "ok"
    assert harness.one.call() == "ok"


REFUSED = Refused(ErrorCode.EMBEDDING_UNAVAILABLE, "It refuses us (HTTP 401).")


def test_one_refusal_opens_it_and_is_on_record_until_an_answer(harness: Harness) -> None:
    assert harness.one.call(REFUSED) == "open 30"
    assert harness.states.read()[EMBEDDING].refusal == "It refuses us (HTTP 401)."
    opened_at = harness.states.read()[EMBEDDING].opened_at
    for _ in range(3):
        harness.clock.tick(30)
        assert harness.two.call(REFUSED) == "open 30"
        assert harness.states.read()[EMBEDDING].opened_at == opened_at
    harness.clock.tick(30)
    assert harness.one.call() == "ok"
    assert (harness.phase(), harness.states.read()[EMBEDDING].refusal) == ("closed", "")


def test_a_call_that_is_not_made_says_what_is_known(harness: Harness) -> None:
    def message(error: Exception | None = None) -> str:
        def work() -> None:
            if error is not None:
                raise error

        with pytest.raises(TransientError) as caught:
            harness.one.breaker.call(work)
        return caught.value.message

    assert [message(UNAVAILABLE) for _ in range(3)] == ["away"] * 3
    assert message() == "Not tried: the last requests failed."
    harness.clock.tick(30)
    assert [message(REFUSED), message()] == ["It refuses us (HTTP 401)."] * 2


def test_a_refusal_is_not_what_the_next_failure_is_taken_for(harness: Harness) -> None:
    harness.one.call(REFUSED)
    harness.clock.tick(30)
    assert harness.one.call() == "ok"
    assert [harness.one.call(UNAVAILABLE) for _ in range(2)] == ["error", "error"]


def test_the_breaker_of_questions_is_open_while_the_workers_is_and_leaves_it_alone(harness: Harness) -> None:
    harness.open()
    workers = harness.states.read()[EMBEDDING]
    asking = [harness.query() for _ in range(3)]
    assert [each.call() for each in asking] == ["open 30"] * 3
    harness.clock.tick(30)
    assert [each.call() for each in asking] == ["ok"] * 3
    assert harness.states.read()[EMBEDDING] == workers
    assert harness.one.call() == "ok"


def test_after_the_workers_outage_one_question_at_a_time_probes(harness: Harness) -> None:
    harness.open()
    harness.clock.tick(30)
    first, second = harness.query(), harness.query()
    seen: list[str] = []
    first.breaker.call(lambda: seen.append(second.call()))
    assert seen == ["open 5"]
    assert second.call() == "ok"
    assert harness.phase() == "half_open"


def test_a_question_that_fails_after_the_workers_outage_opens_the_breaker_of_questions_again(
    harness: Harness,
) -> None:
    harness.open()
    harness.clock.tick(30)
    asking = harness.query()
    assert [asking.call(UNAVAILABLE), asking.call(), harness.query().call()] == ["open 30"] * 3
    assert (harness.phase(), asking.calls) == ("half_open", 1)


def test_the_workers_outage_after_an_answer_to_a_question_counts_again(harness: Harness) -> None:
    harness.open()
    harness.clock.tick(30)
    asking = harness.query()
    assert asking.call() == "ok"
    harness.clock.tick(61)
    assert asking.call() == "ok"
    assert harness.one.call(UNAVAILABLE) == "open 30"
    harness.clock.tick(1)
    assert harness.query().call() == "open 29"


def test_failing_questions_do_not_open_the_workers_breaker(harness: Harness) -> None:
    asking = harness.query()
    assert [asking.call(UNAVAILABLE) for _ in range(4)] == ["error", "error", "open 30", "open 30"]
    assert harness.phase() == "closed"
    assert harness.one.call() == "ok"
