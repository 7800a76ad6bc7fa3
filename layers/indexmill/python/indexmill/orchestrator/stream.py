"""Follow one job as it happens, in windows.

The gateway hands an answer on when it is complete, so an answer ends at the first thing that happened, and
the client asks again with the id of what it saw last. Without that id it is told at once how the job stands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from indexmill.contracts.errors import TransientError
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobStatus
from indexmill.orchestrator.event_stream import Frame, Position, silence, written
from indexmill.orchestrator.pipeline import progress, user_message
from indexmill.orchestrator.ports import JobEvent, JobNews, Windows
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.platform.time.clock import Clock

LONGEST_WINDOW_S: Final = 25.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_SLACK_S: Final = 5.0
"""A window's place is kept a little longer than the window, for its last read."""

_STATUSES: Final = frozenset(status.value for status in JobStatus)

_SOON_MS: Final = 200
_FULL_MS: Final = 2_000
_AWAY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class StreamJob:
    """One window of one job's stream."""

    read: ReadJobs
    windows: Windows
    clock: Clock
    pause: Callable[[float], Awaitable[None]]
    window_s: float = LONGEST_WINDOW_S

    async def __call__(self, ctx: CallerContext, job_id: str, last_event_id: str | None) -> str | None:
        """Return the window's events as text, None when the job is over and all of it was seen.

        Raises CallerError(not_found). An outage of the database is an empty answer, since a browser that got
        an error would never ask again.
        """
        seen = Position.parse(last_event_id)
        try:
            return await self._window(ctx, job_id, seen)
        except TransientError as error:
            return silence(error.code, retry_ms=_AWAY_MS)

    async def _window(self, ctx: CallerContext, job_id: str, seen: Position | None) -> str | None:
        news = self._news(ctx, job_id, seen)
        frames = _frames(news, seen)
        if frames:
            return written(frames, retry_ms=_SOON_MS)
        if seen is None or news.job.status.terminal:
            return None
        place = self.windows.enter(self.window_s + _SLACK_S)
        if place is None:
            return written(_frames(news, None), retry_ms=_FULL_MS)
        try:
            return await self._wait(ctx, job_id, seen)
        finally:
            self.windows.leave(place)

    async def _wait(self, ctx: CallerContext, job_id: str, seen: Position) -> str:
        """Look again and again, seldom and shortly: no connection is held in between."""
        end = self.clock.monotonic() + self.window_s
        pause = _FIRST_PAUSE_S
        while (left := end - self.clock.monotonic()) > 0:
            await self.pause(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            if frames := _frames(self._news(ctx, job_id, seen), seen):
                return written(frames, retry_ms=_SOON_MS)
        return silence("nothing new", retry_ms=_SOON_MS)

    def _news(self, ctx: CallerContext, job_id: str, seen: Position | None) -> JobNews:
        return self.read.events_after(ctx, job_id, seen.seq if seen else 0)


def _frames(news: JobNews, seen: Position | None) -> list[Frame]:
    """Return what a client that has seen `seen` has to be told; one that saw nothing, only how it stands."""
    now = Frame(Position.of(news.newest, news.job), news.job)
    if seen is None:
        return [now]
    if not news.events:
        return [] if seen.knows(now.at) else [now]
    before = [(event.seq, _as_it_was(news.job, event)) for event in news.events[:-1] if _is_status(event)]
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
        }
    )
