"""One job's stream, window by window, on twins: time passes only while a window waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from indexmill.client import StreamReader
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.messages import Retrying, stage_result
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.queries.stream import StreamJob
from indexmill.orchestrator.store.jobs import JobsTx, T
from indexmill.orchestrator.wiring import window_s
from indexmill.platform.progress import LONG_CHUNKS, WorkProgress
from tests.support.jobs import CALLER, URL, chunked, embedded, failed, scraped, stored_job
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.jobs import InMemoryJobs
from tests.twins.state_table import InMemoryPlaces, InMemoryProgress


@dataclass
class Answer:
    """One answer, read as a browser reads it."""

    events: list[dict[str, Any]]
    last_id: str
    retry_s: float

    @property
    def statuses(self) -> list[str]:
        return [event["status"] for event in self.events]


@dataclass
class Following:
    """A stream of a pipeline's jobs; `plan` is what happens at which second of waiting."""

    pipeline: OrchestratorHarness = field(default_factory=OrchestratorHarness)
    limit: int = 5
    plan: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock, store = self.pipeline.clock, self.pipeline.store
        assert isinstance(store, InMemoryJobs)
        self.store = store
        self.board = InMemoryProgress(clock)
        self.places = InMemoryPlaces(self.limit, clock)
        self.stream = StreamJob(ReadJobs(store, self.board, clock=clock), self.places, clock, self._pause)

    async def _pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.pipeline.clock.tick(seconds)
        while self.plan and self.plan[0][0] <= sum(self.waited):
            self.plan.pop(0)[1]()

    def ask(self, job_id: str, last_id: str | None = None, ctx: CallerContext = CALLER) -> Answer | None:
        self.waited.clear()
        answer = asyncio.run(self.stream(ctx, job_id, last_id))
        if answer is None:
            return None
        reader = StreamReader(last_id or "")
        events = [json.loads(data) for data in reader.read(answer)]
        return Answer(events, reader.last_id, reader.retry_s)

    def answer(self, job_id: str, last_id: str | None = None) -> Answer:
        found = self.ask(job_id, last_id)
        assert found is not None
        return found


def test_a_client_without_a_position_gets_the_current_state_at_once() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    answer = following.answer(job_id)
    job = stored_job(following.store, CALLER.caller_id, job_id)
    assert job is not None
    assert answer.events == [job.model_dump(mode="json")]
    assert (following.waited, answer.retry_s) == ([], 0.2)
    assert following.places.writes == 0


def test_a_window_ends_at_the_first_thing_that_happens() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    first = following.answer(job_id)
    following.plan = [(2.0, lambda: following.pipeline.deliver(scraped(job_id)))]
    answer = following.answer(job_id, first.last_id)
    # Chunking is called at once, so two things happened.
    assert answer.statuses == ["chunking", "embedding"]
    assert 2.0 <= sum(following.waited) < 3.1
    assert following.places.taken == []


def test_missed_events_show_the_job_as_it_was_then() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    first = following.answer(job_id)
    following.pipeline.clock.tick(60)
    following.pipeline.deliver(scraped(job_id))
    following.pipeline.clock.tick(60)
    following.pipeline.deliver(failed(job_id, stage="embedding", code="token_limit_exceeded"))
    answer = following.answer(job_id, first.last_id)
    assert answer.statuses == ["chunking", "embedding", "failed"]
    assert [event["progress"]["stage"] for event in answer.events] == [2, 3, 3]
    assert [event["error"] is None for event in answer.events] == [True, True, False]
    assert answer.events[0]["user_message"] == "Processing content…"
    assert answer.events[0]["updated_at"] < answer.events[2]["updated_at"]
    assert following.waited == []


def test_a_retry_wait_is_reported_although_it_is_no_event() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    first = following.answer(job_id)
    following.pipeline.clock.tick(5)
    at = following.pipeline.clock.now() + timedelta(minutes=2)
    note = stage_result(
        message_id="note",
        job_id=job_id,
        stage="scraping",
        status="retrying",
        retrying=Retrying(tries=1, next_retry_at=at, cause="http_503"),
    )
    following.pipeline.deliver(note)
    answer = following.answer(job_id, first.last_id)
    assert (answer.statuses, answer.events[0]["attempts"]) == (["scraping"], 1)
    assert datetime.fromisoformat(answer.events[0]["next_retry_at"]) == at
    assert following.answer(job_id, answer.last_id).events == []
    following.pipeline.deliver(scraped(job_id))
    after = following.answer(job_id, answer.last_id)
    assert [event["next_retry_at"] for event in after.events] == [None, None]


def test_each_event_can_be_resumed_from() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    start = following.answer(job_id)
    following.pipeline.deliver(scraped(job_id))
    following.pipeline.deliver(embedded(job_id))
    answer = asyncio.run(following.stream(CALLER, job_id, start.last_id))
    ids = [line.removeprefix("id: ") for line in (answer or "").splitlines() if line.startswith("id: ")]
    assert [following.answer(job_id, each).statuses for each in ids[:2]] == [["embedding", "done"], ["done"]]


def test_the_final_state_is_sent_once_and_then_the_stream_ends() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    following.pipeline.deliver(failed(job_id))
    answer = following.answer(job_id)
    assert answer.statuses == ["failed"]
    assert following.ask(job_id, answer.last_id) is None


def test_a_quiet_window_ends_without_an_event_and_looks_seldom() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    first = following.answer(job_id)
    answer = following.answer(job_id, first.last_id)
    assert (answer.events, answer.last_id) == ([], first.last_id)
    assert sum(following.waited) == pytest.approx(25)
    assert following.waited[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(following.waited) == 1.0
    assert len(following.waited) < 30


def test_with_all_windows_taken_a_request_is_answered_at_once() -> None:
    following = Following(limit=1)
    job_id = following.pipeline.submit()
    first = following.answer(job_id)
    place = following.places.enter(30)
    assert place is not None
    answer = following.answer(job_id, first.last_id)
    assert (answer.statuses, answer.last_id, answer.retry_s) == (["scraping"], first.last_id, 2.0)
    assert following.waited == []
    following.places.leave(place)
    assert following.answer(job_id, first.last_id).events == []
    assert following.places.taken == []


def test_windows_that_cannot_be_counted_are_not_opened() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    first = following.answer(job_id)
    following.places.unavailable = True
    assert following.answer(job_id, first.last_id).retry_s == 2.0
    assert following.waited == []


@pytest.mark.parametrize(
    "last_id", ["", "x", "-1", "1e3", "\u0661", "1", "1.2", "1.2.3.4", "9" * 40, "999999.1.0"]
)
def test_an_id_that_is_not_of_this_job_counts_as_none(last_id: str) -> None:
    following = Following()
    job_id = following.pipeline.submit()
    assert following.answer(job_id, last_id).statuses == ["scraping"]
    assert following.waited == []


@pytest.mark.parametrize("job_id", ["", "nobody", "5e2c11f4-0000-4000-8000-000000000000"])
def test_an_unknown_job_is_not_found(job_id: str) -> None:
    with pytest.raises(CallerError) as caught:
        Following().ask(job_id)
    assert caught.value.code == "not_found"


def test_another_callers_job_is_not_found() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    with pytest.raises(CallerError) as caught:
        following.ask(job_id, ctx=CallerContext("somebody-else"))
    assert caught.value.code == "not_found"


def test_an_outage_of_the_database_lets_the_client_come_back() -> None:
    following = Following()
    job_id = following.pipeline.submit()
    first = following.answer(job_id)

    class Unavailable(InMemoryJobs):
        def read(self, work: Callable[[JobsTx], T]) -> T:
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "Unavailable.")

    clock = following.pipeline.clock
    read = ReadJobs(Unavailable(clock), following.board)
    following.stream = StreamJob(read, following.places, clock, following._pause)
    answer = following.answer(job_id, first.last_id)
    assert (answer.events, answer.last_id, answer.retry_s) == ([], first.last_id, 5.0)


def long_job(following: Following) -> str:
    """Return a job that is embedding more chunks than a short document has."""
    job_id = following.pipeline.submit()
    following.pipeline.chunking_paused = True
    following.pipeline.deliver(scraped(job_id), chunked(job_id, chunk_count=LONG_CHUNKS + 4))
    return job_id


def test_progress_of_long_work_is_an_event_of_its_own() -> None:
    following = Following()
    job_id = long_job(following)
    first = following.answer(job_id)
    total = first.events[0]["chunk_count"]
    following.plan = [(3.0, lambda: following.board.put(job_id, WorkProgress(1, total, 256, 4_000)))]
    answer = following.answer(job_id, first.last_id)
    shown = {"stage": 3, "of": 3, "chunks_total": total, "chunks_done": 256, "bytes": 4_000}
    assert [event["progress"] for event in answer.events] == [shown]
    assert following.answer(job_id, answer.last_id).events == []
    following.pipeline.deliver(embedded(job_id, chunk_count=total))
    assert following.answer(job_id, answer.last_id).statuses == ["done"]


def test_progress_never_goes_back_within_a_stream() -> None:
    following = Following()
    job_id = long_job(following)
    following.board.put(job_id, WorkProgress(1, 260, 256, 4_000))
    answer = following.answer(job_id)
    # A crashed worker is followed by one that starts again.
    following.board.put(job_id, WorkProgress(1, 260, 10, 100))
    assert following.answer(job_id, answer.last_id).events == []


def test_a_short_document_costs_no_look_at_the_board() -> None:
    following = Following()
    job_id = following.pipeline.submit(URL)
    first = following.answer(job_id)
    following.pipeline.deliver(scraped(job_id))
    following.answer(job_id, first.last_id)
    assert following.board.reads == 0


@pytest.mark.parametrize(("gateway_s", "window"), [(29, 25), (60, 25), (10, 6), (3, 0.5)])
def test_a_window_ends_before_the_gateways_timeout(gateway_s: float, window: float) -> None:
    assert window_s(gateway_s) == window
