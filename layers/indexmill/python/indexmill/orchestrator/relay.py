"""Get committed messages out: to the stages' queues, or as the synchronous call to Chunking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import ChunkCall, Chunked, StageFailure, StageResult
from indexmill.orchestrator.chunk_calls import CALLING_S, Turn, as_item, as_result, exhausted, grouped
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.pipeline import BY_NAME
from indexmill.orchestrator.ports import OutboxRow
from indexmill.orchestrator.ports_chunking import Chunker, ChunkerAway
from indexmill.platform.queues import MESSAGE_BYTES, Queue
from indexmill.platform.time.clock import Clock, SystemClock

_ROUNDS = 3
"""A call's result makes new messages; the longest chain is result, call, next queue."""

_CLOCK: Clock = SystemClock()

ApplyResults = Callable[[Sequence[StageResult]], list[OutboxRow]]


def too_large(row: OutboxRow) -> bool:
    """Say whether no queue would take the row: its job must fail, for waiting does not make it smaller."""
    return row.kind == "queue" and len(row.payload.encode()) > MESSAGE_BYTES


class Sender(Protocol):
    """What a use case does with the messages that it committed."""

    def send(self, rows: Sequence[OutboxRow]) -> None:
        """Get rows out that this process holds. Never raises for what is away."""
        ...


@dataclass(frozen=True, slots=True)
class Relay:
    """Sends outbox rows that this process holds. What fails stays for the sweeper."""

    store: JobStore
    queues: Mapping[str, Queue]
    """By stage name."""

    def send(self, rows: Sequence[OutboxRow]) -> None:
        """Send the rows of queue stages and note which are out. Never raises for a queue that is away.

        A row that is too large for a queue is left for whoever can fail its job.
        """
        by_stage: dict[str, list[OutboxRow]] = defaultdict(list)
        for row in rows:
            if row.kind == "queue" and not too_large(row):
                by_stage[row.stage].append(row)
        sent: list[str] = []
        for stage, group in by_stage.items():
            sent.extend(self._send_group(stage, group))
        if sent:
            self.note_sent(sent)

    def _send_group(self, stage: str, group: list[OutboxRow]) -> list[str]:
        try:
            refused = set(
                self.queues[stage].send([row.payload for row in group], [row.caller_id for row in group])
            )
        except TransientError as error:
            self.note_failed([row.id for row in group], error.code, away=True)
            return []
        if refused:
            self.note_failed([group[at].id for at in sorted(refused)], ErrorCode.QUEUE_UNAVAILABLE)
        return [row.id for at, row in enumerate(group) if at not in refused]

    def note_sent(self, ids: list[str]) -> None:
        """Note which rows are out or done. Never raises for a store that is away."""
        try:
            self.store.mark_sent(ids)
        except TransientError:
            # The messages are out; unmarked rows are sent once more later, a copy that the fence ignores.
            return

    def note_failed(self, ids: list[str], error: str, *, away: bool = False) -> None:
        """Note which rows are not out. Never raises for a store that is away."""
        try:
            self.store.mark_failed(ids, error, away=away)
        except TransientError:
            # Their claim runs out by itself and the sweeper takes them.
            return


@dataclass(frozen=True, slots=True)
class CallRelay:
    """Runs outbox rows to their end, the synchronous call included; used where there is time for it."""

    relay: Relay
    chunker: Chunker
    apply: ApplyResults
    inline_limit: int
    clock: Clock = _CLOCK

    def turn(self) -> Turn:
        """Begin a turn: what several runs share, so that Chunking is not asked again and again."""
        return Turn(until=self.clock.monotonic() + CALLING_S)

    def run(self, rows: Sequence[OutboxRow], turn: Turn | None = None) -> None:
        """Send queue rows, run call rows, apply what the calls gave, and send what follows from that."""
        turn = turn or self.turn()
        for _ in range(_ROUNDS):
            if not rows:
                return
            self.relay.send(rows)
            calls = [row for row in rows if row.kind == "call"]
            following = self._refuse([row for row in rows if too_large(row)])
            rows = following + self._call(calls, turn)

    def _refuse(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Fail the jobs of messages that no queue takes."""
        if not rows:
            return []
        following = self.apply([_refused(row) for row in rows])
        self.relay.store.mark_sent([row.id for row in rows])
        return following

    def _call(self, rows: Sequence[OutboxRow], turn: Turn) -> list[OutboxRow]:
        following: list[OutboxRow] = []
        for group in grouped(rows):
            if turn.away is not None:
                self._leave(group, turn)
            elif self.clock.monotonic() < turn.until:
                following.extend(self._call_group(group, turn))
            # For want of time nothing is noted: the claim runs out, and the sweeper goes on.
        return following

    def _call_group(self, group: Sequence[OutboxRow], turn: Turn) -> list[OutboxRow]:
        documents = [as_item(row) for row in group]
        call = ChunkCall(items=documents, inline_limit=self.inline_limit)
        try:
            reply = self.chunker.chunk(call)
        except TransientError as error:
            if isinstance(error, ChunkerAway) or not self._answers():
                turn.away = error.code
                self._leave(group, turn)
                return []
            return self._call_failed(group, error.code)
        made = zip(group, documents, reply.items, strict=True)
        following = self.apply([as_result(*each) for each in made])
        # Not known to be done, a call is made once more; what follows from it must go on.
        self.relay.note_sent([row.id for row in group])
        return following

    def _answers(self) -> bool:
        """Say whether a call without documents is answered: then the other one ended by what it carried.

        A function that runs out of time while it starts, or that fails at everything, looks the same as one
        that a document ended.
        """
        try:
            self.chunker.chunk(ChunkCall(items=[], inline_limit=self.inline_limit))
        except TransientError:
            return False
        return True

    def _leave(self, group: Sequence[OutboxRow], turn: Turn) -> None:
        """Leave rows for the next sweep; that nobody takes their call is no try of theirs."""
        turn.waiting += len(group)
        self.relay.store.mark_failed([row.id for row in group], turn.away or "", away=True)

    def _call_failed(self, group: Sequence[OutboxRow], code: str) -> list[OutboxRow]:
        """Leave the rows for the sweeper's next try; one that was tried often enough fails its job."""
        spent = [row for row in group if row.tries >= BY_NAME[row.stage].max_retries]
        waiting = [row.id for row in group if row not in spent]
        if waiting:
            self.relay.store.mark_failed(waiting, code)
        if not spent:
            return []
        following = self.apply(
            [as_result(row, as_item(row), Chunked(failure=exhausted(row, code))) for row in spent]
        )
        self.relay.store.mark_sent([row.id for row in spent])
        return following


def _refused(row: OutboxRow) -> StageResult:
    failure = StageFailure(
        code=ErrorCode.MESSAGE_TOO_LARGE, message="The work item is larger than a message may be."
    )
    return StageResult(
        message_id=f"{row.id}:refused",
        job_id=row.job_id,
        attempt=row.attempt,
        stage=cast("Literal['scraping', 'embedding']", row.stage),
        status="failed",
        failure=failure,
    )
