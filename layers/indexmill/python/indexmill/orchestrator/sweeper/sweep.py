"""Tick of the sweeper: switches, lost messages, admission, outbox, audit, old rows, indexes, callers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext, new_id
from indexmill.orchestrator.actions.replay import repeated
from indexmill.orchestrator.admission.admit import admit_all, budget_of, with_starts
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.store.duplicates import DueDuplicate
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.sweep import CallerRow, KeptEvent, Maintenance, Retention, SweepStore
from indexmill.orchestrator.sweeper.rescue import CountMessages, Rescue
from indexmill.orchestrator.sweeper.switches import SetSwitches, record_incidents
from indexmill.platform.aws.state_table import ConditionFailed, Item, StateTable, StoreUnavailable
from indexmill.platform.limits.policy import BUCKETS, SERVICES
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

T = TypeVar("T")

_BATCH: Final = 100
_MOST_BATCHES: Final = 50
_EVENTS: Final = 1_000
_ROWS: Final = 1_000
"""Expired rows of a kind, or callers, in one statement."""
_MOST_PURGES: Final = 10
_COUNTED_CHUNKS: Final = 300_000
"""Chunks of old corpora that are counted in one tick: a second of work for the database."""
_PAGES: Final = 100
"""Outdated duplicates that are read again in one tick."""
_SENTINEL: Final = "mirror#callers"
_COUNTED_S: Final = 86_400
_NEWER: Final = "attribute_not_exists(version) OR version <= :version"
LOOKED_AT_EVERY_S: Final = 600.0
"""A look at models reads every document. Each environment begins with one, so that a changed model is seen at
once."""


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes expired rows; the next tick continues."""

    store: SweepStore
    keep: Retention = field(default_factory=Retention)

    def __call__(self) -> dict[str, int]:
        """Delete and return how many rows, by kind. Raises TransientError."""
        done: Counter[str] = Counter()
        for _ in range(_MOST_PURGES):
            batch = self.store.purge(self.keep, _ROWS)
            done.update(batch)
            if max(batch.values(), default=0) < _ROWS:
                break
        return dict(done)


class Mirror:
    """Items "caller#<id>" {root}, "door#maintenance" {message}, and "mirror#callers" while they are not lost.

    A blocked caller has {blocked} in each of its items "door#<service>#<bucket>#<id>", which count its
    requests too: one read or write of such an item is all that a request costs.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client, made when it is missing. Calls raise TransientError."""
        self._table = StateTable(table, clock, dynamodb)

    def exists(self) -> bool:
        """Return whether it was begun and not lost since."""
        try:
            return self._table.get(_SENTINEL) is not None
        except StoreUnavailable as error:
            raise _unavailable() from error

    def begin(self) -> None:
        """Record that it was begun."""
        self._update(_SENTINEL, {"begun": self._now()})

    def put(self, caller: CallerRow) -> None:
        """Copy the root; a block and its end reach every item. An older version changes nothing."""
        self._update(f"caller#{caller.caller_id}", {"root": caller.root}, caller.version)
        for key in window_keys(caller.caller_id):
            if caller.blocked_reason is not None:
                blocked = {"blocked": caller.blocked_reason}
                self._update(key, blocked, caller.version, remove="expires_at")
            elif caller.unblocked:
                self._update(key, {"expires_at": self._now() + _COUNTED_S}, caller.version, remove="blocked")

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Write the message, or take it away."""
        if maintenance.message is None:
            self._update("door#maintenance", {}, maintenance.version, remove="message")
        else:
            self._update("door#maintenance", {"message": maintenance.message}, maintenance.version)

    def _update(self, key: str, values: Item, version: int | None = None, *, remove: str = "") -> None:
        """Write attributes and remove one, unless the item has a later version."""
        if version is not None:
            values = {**values, "version": version}
        removal = f"REMOVE {remove} " if remove else ""
        change = f"{removal}SET {', '.join(f'{name} = :{name}' for name in values)}"
        given = {f":{name}": value for name, value in values.items()}
        try:
            self._table.update(key, change, given, only_if="" if version is None else _NEWER)
        except ConditionFailed:
            return
        except StoreUnavailable as error:
            raise _unavailable() from error

    def _now(self) -> int:
        return int(self._table.now())


def window_keys(caller_id: str) -> Iterator[str]:
    """Yield the keys of the items in which a caller's requests are counted."""
    return (f"door#{service}#{bucket}#{caller_id}" for service in SERVICES for bucket in BUCKETS)


def _unavailable() -> TransientError:
    return TransientError(ErrorCode.DATABASE_UNAVAILABLE, "The state table cannot be written.")


@dataclass(frozen=True, slots=True)
class MirrorCallers:
    """Copies what changed since the last tick, and everything when the copy is lost.

    Two may run at once: of two versions of a row the copy keeps the later one.
    """

    store: SweepStore
    mirror: Mirror

    def __call__(self) -> int:
        """Copy and return how many rows. Raises TransientError: the next tick copies what was not."""
        if not self.mirror.exists():
            self.store.mirror_all()
            self.mirror.begin()
        callers = self.store.unmirrored(_ROWS)
        for caller in callers:
            self.mirror.put(caller)
        if callers:
            self.store.mark_mirrored(callers)
        maintenance = self.store.unmirrored_maintenance()
        if maintenance is not None:
            self.mirror.put_maintenance(maintenance)
            self.store.mark_maintenance_mirrored(maintenance.version)
        return len(callers) + (maintenance is not None)


@dataclass(slots=True)
class FindOtherModels:
    """Records an incident for each other model that documents have vectors of, until none has."""

    store: SweepStore
    model: str
    dimension: int
    observability: Observability
    clock: Clock
    _found: int = 0
    _until_s: float = -math.inf

    def __call__(self) -> int:
        """Return how many documents there were at the last look. Raises TransientError."""
        if self.clock.monotonic() >= self._until_s:
            found = self.store.other_models(self.model, self.dimension)
            record_incidents(self.store, self.observability, "other_model", found)
            self._found = sum(detail["documents"] for detail in found.values())
            self._until_s = self.clock.monotonic() + LOOKED_AT_EVERY_S
        return self._found


class IndexBuilder(Protocol):
    """Function that builds the indexes of vectors."""

    def start(self) -> None:
        """Let it build what is due; does not wait for it. Raises TransientError."""
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """The sweeper's views of the one store."""

    jobs: JobStore
    sweep: SweepStore


@dataclass(frozen=True, slots=True)
class SweepJobs:
    """The schedule's use case. A step that fails does not prevent the others.

    Two may run at once: rows are claimed, only one count of a minute counts, and copies stop at the fence.
    """

    stores: Stores
    relay: Relay
    count: CountMessages
    rescue: Rescue
    switches: SetSwitches
    purge: Purge
    index_builder: IndexBuilder
    mirror: MirrorCallers
    other_models: FindOtherModels
    observability: Observability
    deletions: Callable[[], int] | None = None
    """Ends deletions whose rows are gone."""

    def __call__(self) -> dict[str, int]:
        """Do one tick and return what was done: messages sent, by reason, rows deleted, and what was seen."""
        none: list[str] = []
        interrupted = self._try("switches", self.switches, none)
        tally = self._try("count", self.count, None)
        lost = self._try("lost", partial(self.rescue.lost, tally), 0) if tally else 0
        stuck = self._try("stuck", partial(self.rescue.stuck, tally, interrupted), 0) if tally else 0
        done = {
            "lost": lost,
            "overtaken": self._try("overtaken", partial(self.rescue.overtaken, tally), 0) if tally else 0,
            "rescued": stuck,
            "duplicates": self._try("duplicates", partial(read_again, self.stores.jobs, new_id), 0),
            "deleted": self._try("deletions", self.deletions, 0) if self.deletions else 0,
            "admitted": self._try("admit", self._admit, 0),
            "leftovers": self._try("leftovers", self._unsent, 0),
            "parked": self._try("parked", self._parked, 0),
            "audited": self._try("audit", self._audit, 0),
            "purged": self._try("purge", self._purge, 0),
            "indexes": self._try("indexes", self._indexes, 0),
            "counted": self._try("count_corpora", self._count_corpora, 0),
            "mirrored": self._try("mirror", self.mirror, 0),
            "other_models": self._try("other_models", self.other_models, 0),
        }
        self.observability.log.info("sweep.finished", extra=done)
        self.observability.flush()
        return done

    def _unsent(self) -> int:
        """Send messages that no process has claimed, redispatched ones included."""
        sent = 0
        for _ in range(_MOST_BATCHES):
            rows = self.stores.jobs.claim(_BATCH)
            if not rows:
                break
            sent += len(rows)
            self.relay.send(rows)
        return sent

    def _admit(self) -> int:
        rows = admit_all(self.stores.jobs)
        self.relay.send(rows)
        return len(rows)

    def _audit(self) -> int:
        """Write the database's audit events into the log, beside those of requests."""
        written = 0
        for _ in range(_MOST_BATCHES):
            batch = self.stores.sweep.log_audit(self._emit, _EVENTS)
            written += batch
            if batch < _EVENTS:
                break
        return written

    def _emit(self, kept: KeptEvent) -> None:
        ctx = CallerContext(kept.caller_id, kept.caller_type, kept.tier)
        own = {"event_id": kept.seq, "at": kept.at.isoformat()}
        self.observability.emit(kept.event, ctx, **own, **kept.fields)

    def _purge(self) -> int:
        return sum(self.purge().values())

    def _indexes(self) -> int:
        """Start the builder when an index is due: it looks again itself, and one builds at a time."""
        due = self.stores.sweep.index_builds_due()
        if due:
            self.index_builder.start()
        return due

    def _count_corpora(self) -> int:
        return self.stores.sweep.count_old_corpora(_ROWS, _COUNTED_CHUNKS)

    def _parked(self) -> int:
        parked = self.stores.sweep.parked()
        if parked:
            self.observability.log.error("outbox.parked", extra={"messages": parked})
            self.observability.count("outbox_parked", parked)
        return parked

    def _try(self, step: str, work: Callable[[], T], otherwise: T) -> T:
        try:
            return work()
        except TransientError as error:
            self.observability.log.warning("sweep.step_failed", extra={"step": step, "code": error.code})
            self.observability.count("sweep_steps_failed_total", function=self.observability.function)
            return otherwise


def read_again(store: JobStore, make_id: Callable[[], str]) -> int:
    """Insert pending jobs for pages that are due; return how many.

    A page whose job was a duplicate is fetched. One that is published beside its original is read from its
    stored content while that is certainly kept: that its text is the same is known already.
    """
    ids = [(make_id(), make_id()) for _ in range(_PAGES)]
    return store.transaction(
        lambda tx: sum(_read(tx, due, *own) for due, own in zip(tx.due_duplicates(_PAGES), ids, strict=False))
    )


def _read(tx: JobsTx, due: DueDuplicate, job_id: str, message_id: str) -> bool:
    original = tx.original(due.caller_id, due.job_id)
    if original is None:
        return False
    stored = original.stored if due.is_kept else None
    new = replace(
        repeated(original, stored, tx.kept_payloads(due.job_id), job_id, message_id),
        tier=due.tier,
        priority=original.job.priority,
        mark_stale=due.mark_stale,
        budget=budget_of(original.job.budget, tx.limits.of(due.tier)),
    )
    jobs = with_starts(tx, [new], replays=True) if stored is None else [new]
    if tx.insert_jobs(jobs, {job_id: None}, {}):
        return True
    tx.put_off_duplicate(due.document_id)
    return False
