"""Event stream of one job: server-sent events in short responses, and the tokens that browsers read it with.

API Gateway forwards a response when it is complete. So a response ends with the first event, and the client
reconnects with the id of the last event that it has seen; without that id it gets the current state at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

from indexmill.contracts.errors import TransientError
from indexmill.contracts.identity import CallerContext, new_id
from indexmill.contracts.job import Job, JobStatus, StreamToken
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.store.queries import JobEvent, JobSnapshot
from indexmill.orchestrator.store.texts import progress, user_message
from indexmill.platform.aws.clients import QUICK
from indexmill.platform.aws.state_table import ConditionFailed, StateTable, StoreUnavailable
from indexmill.platform.security.stream_tokens import StreamGrant, sign
from indexmill.platform.time import Clock

LONGEST_WINDOW_S: Final = 25.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_SLACK_S: Final = 5.0
"""A window's place is kept a little longer than the window, for its last read."""

_ID: Final = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})", re.ASCII)
_STATUSES: Final = frozenset(status.value for status in JobStatus)

_VALID_FOR: Final = timedelta(hours=1)
"""Of a token: `EventSource` reconnects to the same URL, so it outlives all but very long jobs."""

_SOON_MS: Final = 200
_FULL_MS: Final = 2_000
_UNAVAILABLE_MS: Final = 5_000

_PLACES: Final = "stream-windows"
_PLACES_KEPT_S: Final = 24 * 3600
_LOG: Final = logging.getLogger(__name__)


class StreamPlaces:
    """Places of the streams that wait for an event, in all processes together: a set in the state table.

    A place is "<epoch second of its end>#<id>"; one whose process died is removed when room is needed.
    """

    def __init__(self, table: str, limit: int, clock: Clock, dynamodb: Any | None = None) -> None:
        """At most `limit` places; `dynamodb` is a low-level client, made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb, limits=QUICK)
        self._limit = limit

    def enter(self, seconds: float) -> str | None:
        """Take a place for at most `seconds`; None when all are taken, or the count cannot be read.

        It costs one conditional write; when all are taken, two more requests if some expired.
        """
        if self._limit < 1:
            return None
        try:
            return self._take(seconds) or (self._take(seconds) if self._clear() else None)
        except StoreUnavailable:
            _LOG.warning("stream windows cannot be counted", exc_info=True)
            return None

    def leave(self, place: str) -> None:
        """Give the place back. Never raises: a place that is not given back is free after its seconds."""
        try:
            self._remove({place})
        except StoreUnavailable:
            _LOG.warning("a stream window's place is kept until its end", exc_info=True)

    def _take(self, seconds: float) -> str | None:
        now = self._table.now()
        place = f"{int(now + seconds) + 1}#{new_id()}"
        try:
            self._table.update(
                _PLACES,
                "ADD places :place SET expires_at = :end",
                {":place": {place}, ":limit": self._limit, ":end": int(now) + _PLACES_KEPT_S},
                only_if="attribute_not_exists(places) OR size(places) < :limit",
            )
        except ConditionFailed:
            return None
        return place

    def _clear(self) -> bool:
        """Remove the expired places and return whether there were any."""
        item = self._table.get(_PLACES, consistent=True, expired=True) or {}
        now = self._table.now()
        over = {place for place in item.get("places", ()) if int(place.partition("#")[0]) < now}
        if over:
            self._remove(over)
        return bool(over)

    def _remove(self, places: set[str]) -> None:
        self._table.update(_PLACES, "DELETE places :places", {":places": places})


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a client in a job's history: an event's `id`, which it sends as Last-Event-ID."""

    seq: int
    """Of the last event of its history."""
    changed: int
    """Epoch millisecond of the job's last change; a wait changes a job without being an event."""
    chunks_done: int

    @classmethod
    def of(cls, seq: int, job: Job) -> Self:
        """Return the position after event `seq`, which led to `job`."""
        return cls(seq, int(job.updated_at.timestamp() * 1000), job.progress.chunks_done or 0)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Read a Last-Event-ID; None when it is missing or has another form."""
        found = _ID.fullmatch(text or "")
        return cls(*map(int, found.groups())) if found else None

    def knows(self, now: Self) -> bool:
        """Return whether `now`, after the same event, shows nothing new; progress may decrease."""
        return self.changed == now.changed and self.chunks_done >= now.chunks_done

    def __str__(self) -> str:
        return f"{self.seq}.{self.changed}.{self.chunks_done}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: the job as `GET` shows it, after one entry of its history."""

    at: Position
    job: Job


def written(frames: Sequence[Frame], *, retry_ms: int) -> str:
    """Return the frames as text; the client asks again `retry_ms` after the answer's end."""
    events = [f"id: {frame.at}\ndata: {frame.job.model_dump_json()}\n\n" for frame in frames]
    return "".join((f"retry: {retry_ms}\n", *events))


def silence(reason: str, *, retry_ms: int) -> str:
    """Return an answer without an event, which a client takes as a reason to ask again."""
    return f": {reason}\nretry: {retry_ms}\n\n"


@dataclass(frozen=True, slots=True)
class StreamJob:
    """One window of one job's stream."""

    read: ReadJobs
    places: StreamPlaces
    clock: Clock
    pause: Callable[[float], Awaitable[None]]
    window_s: float = LONGEST_WINDOW_S

    async def __call__(self, ctx: CallerContext, job_id: str, last_event_id: str | None) -> str | None:
        """Return the window's events as text, None when the job has ended and all of it was seen.

        Raises CallerError(not_found). An outage of the database is an empty answer, since a browser that got
        an error would never ask again.
        """
        seen = Position.parse(last_event_id)
        try:
            return await self._window(ctx, job_id, seen)
        except TransientError as error:
            return silence(error.code, retry_ms=_UNAVAILABLE_MS)

    async def _window(self, ctx: CallerContext, job_id: str, seen: Position | None) -> str | None:
        snapshot = self._snapshot(ctx, job_id, seen)
        frames = _frames(snapshot, seen)
        if frames:
            return written(frames, retry_ms=_SOON_MS)
        if seen is None or snapshot.job.status.terminal:
            return None
        place = self.places.enter(self.window_s + _SLACK_S)
        if place is None:
            return written(_frames(snapshot, None), retry_ms=_FULL_MS)
        try:
            return await self._wait(ctx, job_id, seen)
        finally:
            self.places.leave(place)

    async def _wait(self, ctx: CallerContext, job_id: str, seen: Position) -> str:
        """Poll with growing pauses; no database connection stays open between two reads."""
        end = self.clock.monotonic() + self.window_s
        pause = _FIRST_PAUSE_S
        while (left := end - self.clock.monotonic()) > 0:
            await self.pause(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            if frames := _frames(self._snapshot(ctx, job_id, seen), seen):
                return written(frames, retry_ms=_SOON_MS)
        return silence("nothing new", retry_ms=_SOON_MS)

    def _snapshot(self, ctx: CallerContext, job_id: str, seen: Position | None) -> JobSnapshot:
        return self.read.events_after(ctx, job_id, seen.seq if seen else 0)


def _frames(snapshot: JobSnapshot, seen: Position | None) -> list[Frame]:
    """Return the frames after position `seen`; for a client without a position only the job's state."""
    now = Frame(Position.of(snapshot.newest, snapshot.job), snapshot.job)
    if seen is None:
        return [now]
    if not snapshot.events:
        return [] if seen.knows(now.at) else [now]
    before = [
        (event.seq, _as_it_was(snapshot.job, event)) for event in snapshot.events[:-1] if _is_status(event)
    ]
    return [*(Frame(Position.of(seq, job), job) for seq, job in before), now]


def _is_status(event: JobEvent) -> bool:
    return event.to_status in _STATUSES


def _as_it_was(job: Job, event: JobEvent) -> Job:
    status = JobStatus(event.to_status)
    stage = event.error.stage if event.error else None
    return job.model_copy(
        update={
            "status": status,
            "attempt": event.attempt,
            "updated_at": event.at,
            "error": event.error,
            "failed_stage": stage,
            "user_message": user_message(status, event.error),
            "progress": progress(status, stage),
            "attempts": event.error.attempts if event.error else None,
            "next_retry_at": None,
            "last_error": None,
            "waiting": None,
        }
    )


@dataclass(frozen=True, slots=True)
class GrantStream:
    """Signs tokens for a caller's own jobs."""

    read: ReadJobs
    clock: Clock
    secret: Callable[[], str]
    """Fetched when the first token is signed."""

    def __call__(self, ctx: CallerContext, job_id: str, base_url: str) -> StreamToken:
        """Return a token for the job and the URL to use it at, below `base_url`.

        Raises CallerError(not_found) for an unknown job and for another caller's.
        """
        job = self.read.get(ctx, job_id)
        # Whole seconds, as in the token.
        expires_at = (self.clock.now() + _VALID_FOR).replace(microsecond=0)
        token = sign(self.secret(), StreamGrant(job.job_id, ctx.caller_id, expires_at))
        url = f"{base_url}/orchestrator/jobs/{job.job_id}/stream?token={token}"
        return StreamToken(token=token, expires_at=expires_at, url=url)
