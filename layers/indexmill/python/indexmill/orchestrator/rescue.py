"""Send lost messages again, by two nets: the count of what is missing, and half an hour of silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.messages import StageFailure, StageResult, stage_result
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.accounting import Tally, confirm
from indexmill.orchestrator.ports_sweep import MOST_RESCUES, Count, Silent, SweepStore
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.results import Recorder
from indexmill.platform.observability import Observability

_LONGEST_WAIT: Final = timedelta(hours=12)
"""A queue hides a message no longer than that."""
_AT_ONCE: Final = 5_000
_PASSED: Final = ", passed"
"""Behind a stage's name: the count of those that were passed."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """Sends kept messages again: same attempt, same message id, so that a copy stops at the fence."""

    store: SweepStore
    record: Recorder
    relay: Relay
    observability: Observability

    def lost(self, tally: Tally) -> int:
        """Send again what two counts agree is missing, and return how many messages that were.

        Which jobs lost theirs is not known: those without an event for the longest time are the likeliest.
        In front of a queue that is not empty that is a guess, so there a job must also have been passed by
        others: its turn has come and gone. No message is sent again twice for one that is missing.
        """
        counts = {stage: Count(missing, tally.at) for stage, missing in tally.missing.items()}
        news = self.record.store.transaction(lambda tx: confirm(tx, counts))
        if not news:
            return 0
        confirmed = {stage: number for stage, number in news.items() if number}
        again = sum(self._send_lost(stage, number, tally) for stage, number in confirmed.items())
        details = {stage: {"missing": number} for stage, number in confirmed.items()}
        self.store.incidents("messages_missing", details)
        return again

    def passed(self, tally: Tally) -> int:
        """Tell how many jobs two ticks agree were passed by others, and return how many.

        In the midst of thousands the count misses little: whatever is just moving may be the missing one. But
        a lost message is passed then. Nothing is sent again for it alone, since a worker that died may hold
        it: the count finds it when there is less to do, and half an hour of silence in any case.
        """
        found = self.store.passed(tally.settled)
        counts = {f"{stage.name}{_PASSED}": Count(found.get(stage.name, 0), tally.at) for stage in STAGES}
        news = self.record.store.transaction(lambda tx: confirm(tx, counts))
        if not news:
            return 0
        confirmed = {stage.removesuffix(_PASSED): number for stage, number in news.items() if number}
        for stage, number in confirmed.items():
            self.observability.log.warning("jobs.passed", extra={"stage": stage, "jobs": number})
            self.observability.count("jobs_passed", number, stage=stage)
        self.store.incidents("jobs_passed", {stage: {"jobs": number} for stage, number in confirmed.items()})
        return sum(confirmed.values())

    def stuck(self, tally: Tally, held: Sequence[str] = ()) -> int:
        """Send again what is silent for half an hour without a reason; stages `held` were interrupted."""
        awake = [stage.name for stage in STAGES if stage.name not in held]
        empty = [name for name in awake if tally.empty(name) and tally.reports == 0]
        busy = [name for name in awake if name not in empty]
        return self._handle(self.store.stuck(empty, busy, _AT_ONCE), tally, "silent")

    def _send_lost(self, stage: str, confirmed: int, tally: Tally) -> int:
        self.observability.log.error("messages.missing", extra={"stage": stage, "missing": confirmed})
        self.observability.count("messages_missing", confirmed, stage=stage)
        found = self.store.silent(
            stage, min(confirmed, _AT_ONCE), tally.settled, passed=not tally.empty(stage)
        )
        return self._handle(found, tally, "lost")

    def _handle(self, jobs: Sequence[Silent], tally: Tally, reason: str) -> int:
        hopeless = [job for job in jobs if _hopeless(job, tally)]
        again = [job for job in jobs if job.message_id is not None and job.rescues < MOST_RESCUES]
        if hopeless:
            self.relay.send(self.record([_given_up(job) for job in hopeless]))
        for job in again:
            self._tell(job, reason)
        return self.store.send_again(again) if again else 0

    def _tell(self, job: Silent, reason: str) -> None:
        fields = {
            "job_id": job.job_id,
            "caller_id": job.caller_id,
            "stage": job.stage,
            "url": job.url,
            "updated_at": job.updated_at.isoformat(),
            "stuck_for_s": round(job.stuck_for.total_seconds()),
        }
        self.observability.log.warning("job.rescued", extra={**fields, "reason": reason})
        self.observability.count("jobs_rescued_total", stage=job.stage)


def _hopeless(job: Silent, tally: Tally) -> bool:
    """Say whether the job must fail: it cannot be started again, or was so often and nothing is under way."""
    if job.message_id is None:
        return True
    idle = tally.empty(job.stage) and tally.reports == 0
    return job.rescues >= MOST_RESCUES and (job.parked or idle or job.stuck_for > _LONGEST_WAIT)


def _given_up(job: Silent) -> StageResult:
    failure = StageFailure(
        code=ErrorCode.STUCK_TIMEOUT,
        message=f"{job.stage.capitalize()} gave no sign of life and was started again {job.rescues} times",
        tries=job.rescues + 1,
    )
    return stage_result(
        message_id=f"{job.message_id or job.job_id}:{job.attempt}:stuck",
        job_id=job.job_id,
        attempt=job.attempt,
        stage=job.stage,
        status="failed",
        failure=failure,
    )
