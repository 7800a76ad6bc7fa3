"""What is told to those who wait: positions, reasons, times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from indexmill.contracts.job import Job, JobStatus, Waiting
from indexmill.orchestrator.adapters import admission_sql as sql
from indexmill.orchestrator.adapters.postgres_admission import floor_of, usage_of, usage_parameters
from indexmill.orchestrator.admission import Floor, Usage, hold
from indexmill.orchestrator.forecast import LAST, Pace, eligible_at, expectations
from indexmill.orchestrator.ports import NewJob
from indexmill.orchestrator.quotas import Limits
from indexmill.platform.postgres.database import Connection
from indexmill.platform.time.clock import Clock, SystemClock

_KNOWN_FOR_S: Final = 1.0


@dataclass(slots=True)
class Forecasts:
    """Forecasts by the database's own figures; the pace is asked for once a second at most."""

    limits: Limits
    clock: Clock
    _pace: Pace = field(default_factory=Pace)
    _known_until: float = 0.0

    @classmethod
    def of(cls, limits: Limits) -> Forecasts:
        """Make one with nothing known yet."""
        return cls(limits, SystemClock())

    def promise(self, connection: Connection, jobs: Sequence[NewJob]) -> dict[str, datetime | None]:
        """Say by when each of the jobs, which are submitted now, will have ended; None if others come first.

        Raises CallerError(quota_exceeded) when the caller has too many pending jobs.
        """
        usage, floor, pending = self._usage(connection, jobs[0].target.caller_id, jobs[0].tier)
        return expectations(pending, jobs, usage, self.limits, floor, self._current(connection))

    def told(self, connection: Connection, caller_id: str, jobs: Sequence[Job]) -> list[Job]:
        """Return `jobs` with what the pending ones among them wait for."""
        ids = [job.job_id for job in jobs if job.status is JobStatus.PENDING]
        if not ids:
            return list(jobs)
        # Many positions are one walk along the line, one is a count.
        statement = sql.POSITIONS if len(ids) > 1 else sql.POSITION
        rows = connection.execute(statement, (caller_id, ids)).fetchall()
        waits: dict[str, Waiting] = {}
        if rows:
            usage, floor, _ = self._usage(connection, caller_id, rows[-1][2])
            pace = self._current(connection)
            waits = {job_id: self._waiting(position, usage, floor, pace) for job_id, position, _ in rows}
        if len(waits) < len(ids):
            blocked = [job_id for job_id in ids if job_id not in waits]
            found = {row[0]: row[1] for row in connection.execute(sql.BLOCKERS, (blocked,)).fetchall()}
            waits |= {id_: Waiting(reason="dependency", blocked_by=found.get(id_)) for id_ in blocked}
        return [job.model_copy(update={"waiting": waits.get(job.job_id)}) for job in jobs]

    def _waiting(self, position: int, usage: Usage, floor: Floor, pace: Pace) -> Waiting:
        reason, _ = hold(usage, self.limits.of(usage.tier), floor)
        at = eligible_at(position, usage, self.limits, floor, pace)
        return Waiting(reason=reason, position=position, next_eligible_at=at)

    def _usage(self, connection: Connection, caller_id: str, tier: str) -> tuple[Usage, Floor, int]:
        asked = usage_parameters(self.limits, caller_id, tier)
        row = connection.execute(sql.USAGE, asked).fetchone()
        if row is None:
            raise LookupError(tier)
        return usage_of(row), floor_of(row[9:13]), row[13]

    def _current(self, connection: Connection) -> Pace:
        now = self.clock.monotonic()
        if now >= self._known_until:
            row = connection.execute(sql.PACE, (LAST,)).fetchone()
            self._pace = Pace(*row) if row else Pace()
            self._known_until = now + _KNOWN_FOR_S
        return self._pace
