"""Ports of the sweeper: its rows of the store, backlogs of the queues, and switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

MOST_RESCUES: Final = 3
"""A message that was sent again so often without any effect will not get through."""


PASSED_FOR: Final = timedelta(seconds=90)
"""A job that was passed and silent for so long lost its message, or a worker died with it."""


INTERRUPTED_FOR: Final = timedelta(minutes=30)
"""After a pause or an outage a stage has so long to process what waited before its silence means anything."""


@dataclass(frozen=True, slots=True)
class Silent:
    """A job that waits for a stage, and that nothing happened to for some time."""

    job_id: str
    caller_id: str
    stage: str
    attempt: int
    url: str
    updated_at: datetime
    """Of its last event."""
    stuck_for: timedelta
    message_id: str | None
    """Of the kept message; None when there is none to send again."""
    rescues: int
    """How often that message was sent again already."""
    parked: bool
    """Whether the message could not be sent at all."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages of a stage were missing at a moment of the database's clock."""

    missing: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what is no longer needed is kept."""

    payloads: timedelta = timedelta(days=7)
    """After the job's end: until then it can be tried again."""
    inbox: timedelta = timedelta(days=14)
    """As long as a queue keeps a message: a copy cannot be older, and no fence is needed any more."""
    dead_letters: timedelta = timedelta(days=14)
    """As long as a dead-letter queue would have kept them; longer while their job can be tried again."""
    idempotency_keys: timedelta = timedelta(days=1)


class SweepStore(Protocol):
    """The sweeper's view of jobs and messages. All calls raise TransientError(database_unavailable)."""

    def now(self) -> datetime:
        """Return the database's time: the only clock that counts here."""
        ...

    def outside(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox.

        A message that was sent after `before` still counts as being there; one that was parked does not.
        """
        ...

    def silent(self, stage: str, limit: int, before: datetime, *, passed: bool) -> list[Silent]:
        """Return jobs of `stage` whose message is out since `before`, or parked; the longest silent first.

        With `passed` only those that others of the same caller have passed, or that are silent for half an
        hour: in front of a long queue everybody is silent. Those that were sent again MOST_RESCUES times come
        last.
        """
        ...

    def passed(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were passed.

        Others of the same caller that were sent a minute later have left the stage just now. Only jobs count
        whose message is out since `before`, that nothing happened to for PASSED_FOR, and that did not say
        when they go on.
        """
        ...

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[Silent]:
        """Return jobs without an event for 30 minutes: all of the stages `empty`, the passed ones of `busy`.

        A job that waits for a reason that is known (its message is still to be sent, or its next try has a
        time) is not stuck.
        """
        ...

    def send_again(self, jobs: Sequence[Silent]) -> int:
        """Hand the kept messages of `jobs` to the relay, same attempt and id; return how many.

        A job that something happened to since it was looked at is left alone.
        """
        ...

    def parked(self) -> int:
        """Return how many messages were set aside, as unsendable, that their jobs still wait for."""
        ...

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete at most `limit` rows of each kind that are older than that; return how many, by kind."""
        ...

    def pauses(self) -> Mapping[str, str]:
        """Return why an operator holds back a stage, by stage; `*` stands for all."""
        ...

    def interruptions(self) -> Sequence[tuple[str, str]]:
        """Return kind and subject of pauses and of breakers that were not closed within INTERRUPTED_FOR."""
        ...

    def incidents(
        self, kind: str, current: Mapping[str, Mapping[str, object]]
    ) -> tuple[list[str], list[str]]:
        """Make `current` (detail by subject) the open incidents of `kind`; return what opened and closed."""
        ...


class Backlog(Protocol):
    """What lies in a queue."""

    def messages(self) -> int:
        """Return how many there are: visible, in flight, and delayed, its dead letters included.

        Raises TransientError(queue_unavailable).
        """
        ...


class Switch(Protocol):
    """Whether a stage's worker gets messages."""

    def set(self, *, on: bool) -> bool:
        """Turn it on or off; return whether that changed anything. Raises TransientError."""
        ...
