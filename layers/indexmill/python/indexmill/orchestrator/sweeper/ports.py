"""Ports of the sweeper: its rows of the store, backlogs of the queues, and switches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from indexmill.contracts.audit import AuditEvent

MOST_RESCUES: Final = 3
"""A message that was redispatched so often without effect will not get through."""


OVERTAKEN_AFTER: Final = timedelta(seconds=90)
"""A job that is overtaken and has no event for so long lost its message, or a worker died with it."""


INTERRUPTED_FOR: Final = timedelta(minutes=30)
"""Time after a pause or an outage in which a stage processes its backlog; no job counts as stale before."""


@dataclass(frozen=True, slots=True)
class StaleJob:
    """A job that waits for a stage and had no event for some time."""

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
class KeptEvent:
    """An audit event of the database."""

    seq: int
    at: datetime
    event: AuditEvent
    caller_id: str
    caller_type: str
    tier: str | None
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Count:
    """Missing messages of a stage, with the database's time of the count."""

    missing: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Retention:
    """Time for which rows of each kind are kept after their last use."""

    payloads: timedelta = timedelta(days=7)
    """After the job's end: until then it can be tried again, and leads on in its crawl."""
    inbox: timedelta = timedelta(days=14)
    """As long as a queue keeps a message: a copy cannot be older, and no fence is needed any more."""
    dead_letters: timedelta = timedelta(days=14)
    """As long as a dead-letter queue would have kept them; longer while their job can be tried again."""
    idempotency_keys: timedelta = timedelta(days=1)
    earlier_starts: timedelta = timedelta(hours=1)
    """The longest window of a quota."""
    links: timedelta = timedelta(days=120)
    """Of pages, after a crawl used them last; a new job relies on those that were used in the last 90 days,
    and has to end within the other 30."""


@dataclass(frozen=True, slots=True)
class CallerRow:
    """A caller, or an alias of one."""

    caller_id: str
    root: str
    blocked_reason: str | None
    """None: it is not blocked."""
    unblocked: bool
    """Whether it was blocked before."""
    version: int
    """Raised by every change."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A message to callers while no work is accepted; None otherwise."""

    message: str | None
    version: int


class Mirror(Protocol):
    """Copy of callers and maintenance. All calls raise TransientError."""

    def exists(self) -> bool:
        """Return whether it was begun and not lost since."""
        ...

    def begin(self) -> None:
        """Record that it was begun."""
        ...

    def put(self, caller: CallerRow) -> None:
        """Copy one row; an older version than the copy's changes nothing."""
        ...

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Copy it likewise."""
        ...


class SweepStore(Protocol):
    """The sweeper's view of jobs and messages. All calls raise TransientError(database_unavailable)."""

    def now(self) -> datetime:
        """Return the database's time: the only clock that counts here."""
        ...

    def count_unaccounted(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox.

        A message that was sent after `before` still counts as being there; one that was parked does not.
        """
        ...

    def find_stale(self, stage: str, limit: int, before: datetime, *, overtaken: bool) -> list[StaleJob]:
        """Return jobs of `stage` whose message was sent before `before`, or is parked; the stalest first.

        With `overtaken` only those that later messages of the same caller have overtaken, or without an event
        for half an hour: behind a long backlog every job is without events. Those that were redispatched
        MOST_RESCUES times come last.
        """
        ...

    def count_overtaken(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were overtaken.

        Messages of the same caller that were sent a minute later have left the stage just now. Only jobs
        count whose message was sent before `before`, without an event for OVERTAKEN_AFTER, and without a
        time of their next try.
        """
        ...

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[StaleJob]:
        """Return jobs without an event for 30 minutes: all of stages `empty`, the overtaken ones of `busy`.

        A job that waits for a reason that is known (its message is still to be sent, or its next try has a
        time) is not stuck.
        """
        ...

    def send_again(self, jobs: Sequence[StaleJob]) -> int:
        """Hand the kept messages of `jobs` to the relay, same attempt and id; return how many.

        A job that something happened to since it was looked at is left alone.
        """
        ...

    def parked(self) -> int:
        """Return how many messages were set aside, as unsendable, that their jobs still wait for."""
        ...

    def log_audit(self, write: Callable[[KeptEvent], None], limit: int) -> int:
        """Pass at most `limit` audit events on that were not passed on before; return how many.

        An event is passed on twice when the process dies, or the database fails, before that is committed.
        """
        ...

    def index_builds_due(self) -> int:
        """Return how many indexes of vectors are to be built, but those that were tried in the last hour."""
        ...

    def other_models(self, model: str, dimension: int) -> Mapping[str, Mapping[str, int]]:
        """Return how many documents, of how many corpora, have vectors of each other model, by its name.

        Reads every document once there was another model.
        """
        ...

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete at most `limit` rows of each kind that are older than that; return how many, by kind.

        Crawls are at most a twentieth of `limit`, and at least one; what counts are their pages.
        """
        ...

    def unmirrored(self, limit: int) -> Sequence[CallerRow]:
        """Return callers that are not copied as they are now: blocked ones first, then aliases."""
        ...

    def unmirrored_maintenance(self) -> Maintenance | None:
        """Return it when it is not copied as it is now."""
        ...

    def mark_mirrored(self, callers: Sequence[CallerRow]) -> None:
        """Record that these versions are copied."""
        ...

    def mark_maintenance_mirrored(self, version: int) -> None:
        """Record that this version is copied."""
        ...

    def mirror_all(self) -> None:
        """Record that nothing is copied."""
        ...

    def pauses(self) -> Mapping[str, str]:
        """Return why an operator holds back a stage, by stage; `*` means all."""
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
    """Number of messages in a queue."""

    def messages(self) -> int:
        """Return how many there are: visible, in flight, and delayed, its dead letters included.

        Raises TransientError(queue_unavailable).
        """
        ...


class Switch(Protocol):
    """Event source mapping of a stage's worker."""

    def set(self, *, on: bool) -> bool:
        """Turn it on or off; return whether that changed anything. Raises TransientError."""
        ...


class IndexBuilder(Protocol):
    """Function that builds the indexes of vectors."""

    def start(self) -> None:
        """Let it build what is due; does not wait for it. Raises TransientError."""
        ...


class CountsTx(Protocol):
    """Counts of missing messages, kept between ticks."""

    def last_counts(self, stages: Collection[str]) -> dict[str, Count]:
        """Lock and return the counts of the last tick, by stage."""
        ...

    def keep_counts(self, counts: Mapping[str, Count]) -> None:
        """Keep counts, by stage; an older one changes nothing."""
        ...
