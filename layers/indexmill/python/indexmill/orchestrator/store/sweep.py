"""Rows as the sweeper sees them: lost messages, audit events, expired rows, callers, incidents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.types.json import Jsonb

from indexmill.contracts.job import JobStatus
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.store.rows import SQL
from indexmill.platform.observability import AuditEvent
from indexmill.platform.postgres.database import Connection, Database, Statements

OVERTAKEN_AFTER: Final = timedelta(seconds=90)
"""A job that is overtaken and has no event for so long lost its message, or a worker died with it."""
INTERRUPTED_FOR: Final = timedelta(minutes=30)
"""Time after a pause or an outage in which a stage processes its backlog; no job counts as stale before."""
_STUCK_AFTER: Final = timedelta(minutes=30)


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
    tombstones: timedelta = timedelta(days=90)
    """Longer than a message of before can be sent again: 14 days in a queue and its dead-letter queue, 14 as
    a dead letter, 14 after that was sent again; and longer than a backup is kept (35 days)."""
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


class Counts:
    """Counts of missing messages, kept between ticks."""

    _sql: Statements

    def last_counts(self, stages: Collection[str]) -> dict[str, Count]:
        """Lock and return the counts of the last tick, by stage."""
        found = self._sql.all("last_counts", stages=sorted(stages))
        return {row["stage"]: Count(row["missing"], row["at"]) for row in found}

    def keep_counts(self, counts: Mapping[str, Count]) -> None:
        """Keep counts, by stage; an older one changes nothing."""
        stages = sorted(counts)
        self._sql.do(
            "keep_counts",
            stages=stages,
            missing=[counts[stage].missing for stage in stages],
            at=[counts[stage].at for stage in stages],
        )


class SweepStore:
    """The sweeper's view of jobs and messages; each statement is safe beside another sweeper's.

    All calls raise TransientError(database_unavailable).
    """

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database

    def now(self) -> datetime:
        """Return the database's time: the only clock that counts here."""
        at: datetime = self._rows("now")[0]["at"]
        return at

    def count_unaccounted(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox.

        A message that was sent after `before` still counts as being there; one that was parked does not.
        """
        return self._counts("count_unaccounted", stages=[stage.name for stage in STAGES], before=before)

    def find_stale(self, stage: str, limit: int, before: datetime, *, overtaken: bool) -> list[StaleJob]:
        """Return jobs of `stage` whose message was sent before `before`, or is parked; the stalest first.

        With `overtaken` only those that later messages of the same caller have overtaken, or without an event
        for half an hour: behind a long backlog every job is without events. Those that were redispatched
        MOST_RESCUES times come last.
        """
        return self._stale("find_stale", stages=[stage], limit=limit, before=before, overtaken=overtaken)

    def count_overtaken(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were overtaken.

        Messages of the same caller that were sent a minute later have left the stage just now. Only jobs
        count whose message was sent before `before`, without an event for OVERTAKEN_AFTER, and without a
        time of their next try.
        """
        stages = [stage.name for stage in STAGES]
        if not self._any_stale(stages, OVERTAKEN_AFTER):
            return {}
        any_status = [status.value for status in JobStatus]
        return self._counts(
            "count_overtaken", stages=stages, any_status=any_status, before=before, silence=OVERTAKEN_AFTER
        )

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[StaleJob]:
        """Return jobs without an event for 30 minutes: all of stages `empty`, the overtaken ones of `busy`.

        A job that waits for a reason that is known (its message is still to be sent, or its next try has a
        time) is not stuck.
        """
        stages = [*empty, *busy]
        if not self._any_stale(stages, _STUCK_AFTER):
            return []
        return self._stale("stuck", stages=stages, empty=list(empty), limit=limit)

    def send_again(self, jobs: Sequence[StaleJob]) -> int:
        """Hand the kept messages of `jobs` to the relay, same attempt and id; return how many.

        A job that something happened to since it was looked at is left alone.
        """
        sent = self._rows(
            "send_again",
            job_ids=[job.job_id for job in jobs],
            message_ids=[job.message_id for job in jobs],
            updated_at=[job.updated_at for job in jobs],
        )
        return len(sent)

    def parked(self) -> int:
        """Return how many messages were set aside, as unsendable, that their jobs still wait for."""
        return int(self._rows("count_parked")[0]["count"])

    def log_audit(self, write: Callable[[KeptEvent], None], limit: int) -> int:
        """Pass at most `limit` audit events on that were not passed on before; return how many.

        An event is passed on twice when the process dies, or the database fails, before that is committed.
        """

        def work(connection: Connection) -> int:
            sql = Statements(connection, SQL)
            last = sql.one("last_audit_logged")
            if last is None:
                return 0
            rows = sql.all("audit_to_log", **last, limit=limit)
            ends = [row.pop("xact") for row in rows]
            for row in rows:
                write(KeptEvent(**row))
            if rows:
                sql.do("keep_audit_logged", xact=ends[-1], seq=rows[-1]["seq"])
            return len(rows)

        return self._database.run(work)

    def count_old_corpora(self, corpora: int, chunks: int) -> int:
        """Count what the release before wrote into so many corpora; return how many were counted."""
        return int(self._rows("count_old_corpora", corpora=corpora, chunks=chunks)[0]["count"])

    def index_builds_due(self) -> int:
        """Return how many indexes of vectors are to be built, but those that were tried in the last hour."""
        return int(self._rows("index_builds_due")[0]["count"])

    def other_models(self, model: str, dimension: int) -> Mapping[str, Mapping[str, int]]:
        """Return how many documents, of how many corpora, have vectors of each other model, by its name.

        Reads every document once there was another model.
        """
        rows = self._rows("other_models", model=model, dimension=dimension)
        return {
            f"{row['model']} ({row['dimension']})": {"documents": row["documents"], "corpora": row["corpora"]}
            for row in rows
        }

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete at most `limit` rows of each kind that are older than that; return how many, by kind.

        Crawls are at most a twentieth of `limit`, and at least one; what counts are their pages.
        """
        values = {
            "payloads": keep.payloads,
            "inbox": keep.inbox,
            "keys": keep.idempotency_keys,
            "letters": keep.dead_letters,
            "starts": keep.earlier_starts,
            "links": keep.links,
            "tombstones": keep.tombstones,
            "limit": limit,
        }

        def delete(connection: Connection) -> dict[str, int]:
            sql = Statements(connection, SQL)
            old = {row["kind"]: row["found"] for row in sql.all("has_old_rows", **values)}
            return {kind: sql.do(f"purge_{kind}", **values) if found else 0 for kind, found in old.items()}

        return self._database.read(delete)

    def unmirrored(self, limit: int) -> list[CallerRow]:
        """Return callers that are not copied as they are now: blocked ones first, then aliases."""
        return [CallerRow(**row) for row in self._rows("unmirrored", limit=limit)]

    def unmirrored_maintenance(self) -> Maintenance | None:
        """Return it when it is not copied as it is now."""
        rows = self._rows("unmirrored_maintenance")
        return Maintenance(**rows[0]) if rows else None

    def mark_mirrored(self, callers: Sequence[CallerRow]) -> None:
        """Record that these versions are copied."""
        ids, versions = [each.caller_id for each in callers], [each.version for each in callers]
        self._do("mark_mirrored", ids=ids, versions=versions)

    def mark_maintenance_mirrored(self, version: int) -> None:
        """Record that this version is copied."""
        self._do("mark_maintenance_mirrored", version=version)

    def mirror_all(self) -> None:
        """Record that nothing is copied."""
        self._do("mirror_all")

    def pauses(self) -> Mapping[str, str]:
        """Return why an operator holds back a stage, by stage; `*` means all."""
        return {row["stage"]: row["reason"] for row in self._rows("pauses")}

    def interruptions(self) -> Sequence[tuple[str, str]]:
        """Return kind and subject of pauses and of breakers that were not closed within INTERRUPTED_FOR."""
        rows = self._rows("interruptions", since=INTERRUPTED_FOR)
        return [(row["kind"], row["subject"]) for row in rows]

    def incidents(
        self, kind: str, current: Mapping[str, Mapping[str, object]]
    ) -> tuple[list[str], list[str]]:
        """Make `current` (detail by subject) the open incidents of `kind`; return what opened and closed."""
        known = {row["subject"] for row in self._rows("open_incidents", kind=kind)}
        new = {subject: Jsonb(dict(detail)) for subject, detail in current.items() if subject not in known}
        opened, closed = [], []
        if new:
            opened = self._rows("insert_incidents", kind=kind, subjects=list(new), details=list(new.values()))
        if known - set(current):
            closed = self._rows("close_incidents", kind=kind, subjects=list(current))
        return [row["subject"] for row in opened], [row["subject"] for row in closed]

    def _any_stale(self, stages: list[str], silence: timedelta) -> bool:
        """Return whether any job is stale; the costlier statements run only then."""
        return bool(self._rows("any_stale", stages=stages, silence=silence)[0]["found"])

    def _counts(self, name: str, **values: Any) -> dict[str, int]:
        return {row["stage"]: row["count"] for row in self._rows(name, **values)}

    def _stale(self, name: str, **values: Any) -> list[StaleJob]:
        return [StaleJob(**row) for row in self._rows(name, **values)]

    def _do(self, name: str, **values: Any) -> None:
        self._database.read(lambda connection: Statements(connection, SQL).do(name, **values))

    def _rows(self, name: str, **values: Any) -> list[dict[str, Any]]:
        return self._database.read(lambda connection: Statements(connection, SQL).all(name, **values))
