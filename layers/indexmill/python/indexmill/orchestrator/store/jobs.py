"""Store of the jobs: transactions over the rows of all acts, and the outbox that they commit.

Lock order: idempotency key; sites, in the order of their names; jobs, in the order of ids; inbox; documents,
in the order of ids; crawls, in the order of ids; dependents of ended jobs, in the order of ids; last the
advisory locks of callers, in the order of ids. After those a row of a job is taken only if no other
transaction locked it. Only chains of dependencies, and the sites of pages that a crawl adds, can break the
order: then one of two transactions is the victim of a deadlock, and is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.orchestrator.store.actions import Actions
from indexmill.orchestrator.store.admission import Admission, JobLimits, PaceCache
from indexmill.orchestrator.store.crawls import Crawls
from indexmill.orchestrator.store.deletions import Deletions
from indexmill.orchestrator.store.duplicates import Duplicates
from indexmill.orchestrator.store.queries import Queries
from indexmill.orchestrator.store.results import Results
from indexmill.orchestrator.store.rows import SQL, OutboxRow
from indexmill.orchestrator.store.sweep import Counts
from indexmill.platform.postgres.database import Connection, Database, Statements, storable

T = TypeVar("T")
_RUNS: Final = 5
"""Of a transaction that met another one's change each time."""


class RunAgain(Exception):
    """Raised by work that met another transaction's change: nothing is written, and it runs from its top."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that no consumer could finish."""

    queue: str
    body: str
    """The whole message, or its beginning when `body_ref` is set."""
    receive_count: int
    reason: str
    """A sentence for people."""
    cause: str = "unknown"
    """One of a bounded set, for counting and choosing."""
    job_id: str | None = None
    stage: str | None = None
    attempt: int | None = None
    message_id: str | None = None
    body_ref: BlobRef | None = None
    attributes: Mapping[str, str] | None = None
    """SQS attributes: when it was sent, when it was first received."""
    source_id: str | None = None
    """The queue's own id of the message: kept once, however often it is delivered."""


class JobsTx(Admission, Results, Duplicates, Crawls, Actions, Deletions, Queries, Counts):
    """Row operations of all acts on one connection, in its transaction when there is one.

    They decide nothing; each is one statement. Rows that are locked stay locked until the commit.
    """

    def __init__(self, connection: Connection, limits: JobLimits, paces: PaceCache) -> None:
        """`paces` outlives the transaction."""
        self._sql, self._limits, self._paces = Statements(connection, SQL), limits, paces


class JobStore:
    """The only writer of job state. All calls raise TransientError(database_unavailable)."""

    def __init__(self, database: Database, limits: JobLimits | None = None) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._limits = limits or JobLimits()
        self._pace = PaceCache()

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run `work` in one transaction and return what it returns; nothing is written when it raises.

        It may run again after a lost connection, a deadlock, RunAgain or a unique violation (the next read
        sees the row that another transaction committed meanwhile), also when the first commit did happen:
        apart from `tx` it must have no effects, and make its ids beforehand.
        """
        for _ in range(_RUNS):
            try:
                return self._database.run(lambda connection: work(self._tx(connection)))
            except (UniqueViolation, RunAgain):
                continue
        raise TransientError(
            ErrorCode.DATABASE_UNAVAILABLE, "The jobs of these documents change too fast.", retry_after=1
        )

    def read(self, work: Callable[[JobsTx], T]) -> T:
        """Run reads, each a transaction of its own."""
        return self._database.read(lambda connection: work(self._tx(connection)))

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that no process has claimed."""
        return self._run(lambda sql: [OutboxRow(**row) for row in sql.all("claim", limit=limit)])

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        self._run(lambda sql: sql.do("mark_sent", ids=list(ids)))

    def mark_failed(self, ids: Sequence[str], error: str, *, unavailable: bool = False) -> None:
        """Give claimed messages back after a failed try; one that failed too often is parked.

        `unavailable`: the queue took nothing at all, which does not count as a failure of these messages.
        """
        counted = 0 if unavailable else 1
        self._run(lambda sql: sql.do("mark_failed", ids=list(ids), error=error, counted=counted))

    def record_dead_letter(self, letter: DeadLetter) -> bool:
        """Keep a message that could not be handled, without characters that Postgres cannot store.

        Return whether an earlier delivery had not; one that is kept already stays as it is.
        """
        plain = ("queue", "receive_count", "cause", "stage", "attempt", "source_id")
        texts = ("body", "reason", "job_id", "message_id")
        values = {
            **{name: getattr(letter, name) for name in plain},
            **{name: storable(getattr(letter, name)) for name in texts},
            "body_ref": Jsonb(letter.body_ref.model_dump()) if letter.body_ref else None,
            "attributes": Jsonb(dict(letter.attributes)) if letter.attributes is not None else None,
        }
        return self._run(lambda sql: sql.found("record_dead_letter", **values))

    def _run(self, work: Callable[[Statements], T]) -> T:
        return self._database.read(lambda connection: work(Statements(connection, SQL)))

    def _tx(self, connection: Connection) -> JobsTx:
        return JobsTx(connection, self._limits, self._pace)
