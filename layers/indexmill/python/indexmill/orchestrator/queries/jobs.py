"""Jobs, lists and batches as their caller sees them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from indexmill.contracts.cost import Prices, Receipt, StageReceipt
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_actions import BatchSummary, CrawlState, JobHistory
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobCounts, JobList, JobStatus, Waiting
from indexmill.contracts.pages import cursor_of, foreign_cursor, values_of
from indexmill.contracts.pipeline import BY_NAME, EVERY_STAGE, ORDER, STAGES, Stage
from indexmill.orchestrator.admission.admit import eligible_at, wait_reason
from indexmill.orchestrator.store.crawls import Crawl
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.queries import Hold, JobFilter, JobSnapshot, StageTotals
from indexmill.orchestrator.store.texts import waiting_message
from indexmill.platform.progress import LONG_CHUNKS, ProgressBoard
from indexmill.platform.time import Clock, SystemClock

MOST_COUNTED: Final = 100_000
"""Jobs of one status that a caller's counts go up to."""
_QUIET: Final = timedelta(seconds=5)
"""Time without a change after which a job in flight may be held back."""
_PAUSES_S: Final = (1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class ReadJobs:
    """Get, list and follow jobs. Another caller's job looks exactly like one that does not exist."""

    store: JobStore
    board: ProgressBoard
    prices: Prices = field(default_factory=Prices)
    clock: Clock = field(default_factory=SystemClock)

    def get(self, ctx: CallerContext, job_id: str, *, receipt: bool = False) -> Job:
        """Return one job, with the progress of long work; raises CallerError(not_found)."""
        if not is_job_id(job_id):
            raise unknown_job()

        def work(tx: JobsTx) -> Job:
            return with_holds(tx, self.clock, [read_job(tx, ctx.caller_id, job_id)])[0]

        job = _with_work(self.store.read(work), self.board)
        wanted = JobFilter(ctx.caller_id, job_id=job_id)
        return job.model_copy(update={"receipt": self._receipt(wanted)}) if receipt else job

    def list(self, wanted: JobFilter, cursor: str | None, *, receipt: bool = False) -> JobList:
        """Return one page, and the receipt of all jobs that match.

        Raises CallerError(validation_error) for a cursor that is not ours.
        """
        page = replace(wanted, limit=wanted.limit + 1, before=_decode(cursor) if cursor else None)

        def work(tx: JobsTx) -> list[Job]:
            return with_holds(tx, self.clock, with_waiting(tx, wanted.caller_id, tx.find_jobs(page)))

        found = self.store.read(work)
        jobs = found[: wanted.limit]
        more = len(found) > wanted.limit
        return JobList(
            jobs=jobs,
            count=len(jobs),
            next_cursor=_encode(jobs[-1]) if more else None,
            receipt=self._receipt(wanted) if receipt else None,
        )

    def batch(self, ctx: CallerContext, batch_id: str, *, receipt: bool = False) -> BatchSummary:
        """Count the batch's jobs; raises CallerError(not_found)."""
        lines, crawl = [], None
        if is_job_id(batch_id):
            lines = self.store.read(lambda tx: tx.count_batch(ctx.caller_id, batch_id))
        if not lines:
            raise unknown_batch()
        if any(line.crawls for line in lines):
            crawl = self.store.read(lambda tx: tx.crawl(ctx.caller_id, batch_id))
        by_status = Counter({status.value: 0 for status in JobStatus})
        codes: Counter[str] = Counter()
        for line in lines:
            by_status[line.status.value] += line.count
            if line.code is not None:
                codes[line.code] += line.count
        total = by_status.total()
        done, failed = by_status[JobStatus.DONE.value], by_status[JobStatus.FAILED.value]
        return BatchSummary(
            batch_id=batch_id,
            total=total,
            done=done,
            failed=failed,
            finished=done + failed == total,
            by_status=dict(by_status),
            failed_codes=dict(codes),
            duplicates=sum(line.duplicates for line in lines),
            crawl=None if crawl is None else _state_of(crawl),
            receipt=self._receipt(JobFilter(ctx.caller_id, batch_id=batch_id)) if receipt else None,
        )

    def counts(self, ctx: CallerContext) -> JobCounts:
        """Count the caller's jobs by status."""
        lines = self.store.read(lambda tx: tx.count_jobs(ctx.caller_id, MOST_COUNTED))
        by_status = Counter({status.value: 0 for status in JobStatus})
        stages: Counter[str] = Counter()
        for line in lines:
            by_status[line.status.value] += line.count
            if line.failed_stage is not None:
                stages[line.failed_stage] += line.count
        return JobCounts(
            total=by_status.total(),
            by_status=dict(by_status),
            failed_stages=dict(stages),
            capped=[status for status, count in by_status.items() if count >= MOST_COUNTED],
        )

    def events_after(self, ctx: CallerContext, job_id: str, seq: int) -> JobSnapshot:
        """Return one job with its events after `seq`; raises CallerError(not_found)."""

        def work(tx: JobsTx) -> JobSnapshot:
            snapshot = tx.job_events(ctx.caller_id, job_id, seq) if is_job_id(job_id) else None
            if snapshot is None:
                raise unknown_job()
            (job,) = with_holds(tx, self.clock, with_waiting(tx, ctx.caller_id, [snapshot.job]))
            return replace(snapshot, job=job)

        snapshot = self.store.read(work)
        return replace(snapshot, job=_with_work(snapshot.job, self.board))

    def _receipt(self, wanted: JobFilter) -> Receipt:
        return self.store.read(lambda tx: read_receipt(tx, wanted, self.prices))


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """GET /orchestrator/jobs/{id}/history."""

    store: JobStore

    def __call__(self, ctx: CallerContext, job_id: str) -> JobHistory:
        """Return the history; raises CallerError(not_found)."""
        found = self.store.read(lambda tx: tx.history(ctx.caller_id, job_id)) if is_job_id(job_id) else None
        if found is None:
            raise unknown_job()
        return found


def read_job(tx: JobsTx, caller_id: str, job_id: str) -> Job:
    """Return the caller's job with what it waits for; raises CallerError(not_found)."""
    job = tx.job(caller_id, job_id)
    if job is None:
        raise unknown_job()
    return with_waiting(tx, caller_id, [job])[0]


def with_waiting(tx: JobsTx, caller_id: str, jobs: Sequence[Job]) -> list[Job]:
    """Return the caller's `jobs`, the pending ones with reason, position and estimated start."""
    ids = [job.job_id for job in jobs if job.status is JobStatus.PENDING]
    if not ids:
        return list(jobs)
    waits: dict[str, Waiting] = {}
    positions = tx.positions(caller_id, ids)
    if positions:
        *_, (_, tier) = positions.values()
        usage, overall, _ = tx.usage(caller_id, tier)
        pace = tx.pace()
        reason, _ = wait_reason(usage, tx.limits, overall)
        for job_id, (position, _) in positions.items():
            at = eligible_at(position, usage, tx.limits, overall, pace)
            waits[job_id] = Waiting(reason=reason, position=position, next_eligible_at=at)
    if others := [job_id for job_id in ids if job_id not in waits]:
        for job_id, held in tx.held_back(others).items():
            reason_of_site: Literal["domain", "domain_failing"] = (
                "domain_failing" if held.failing else "domain"
            )
            waits[job_id] = Waiting(reason=reason_of_site, next_eligible_at=held.eligible_at)
    if blocked := [job_id for job_id in others if job_id not in waits]:
        by = tx.blockers(blocked)
        waits |= {id_: Waiting(reason="dependency", blocked_by=by.get(id_)) for id_ in blocked}
    return [job.model_copy(update={"waiting": waits.get(job.job_id, job.waiting)}) for job in jobs]


def with_holds(tx: JobsTx, clock: Clock, jobs: Sequence[Job]) -> list[Job]:
    """Return `jobs` as of now, with the reason where their stage is paused or has an open breaker."""
    now = clock.now()
    return [_as_of(job, now) for job in _held(tx, now, jobs)]


def _held(tx: JobsTx, now: datetime, jobs: Sequence[Job]) -> list[Job]:
    """Return `jobs` with those reasons. What changed a moment ago is held by nothing, and costs no look."""
    quiet_since = now - _QUIET
    quiet = {job.job_id for job in jobs if job.status.value in BY_NAME and job.updated_at < quiet_since}
    if not quiet:
        return list(jobs)
    reasons = reasons_by_stage(tx)
    return [
        job.model_copy(update={"waiting": Waiting(reason=reasons[job.status.value])})
        if job.job_id in quiet and job.status.value in reasons
        else job
        for job in jobs
    ]


def _as_of(job: Job, now: datetime) -> Job:
    """Return the job with its current wait: cause, next try, and time by which the job ends."""
    if job.status.terminal:
        return job
    changes: dict[str, Any] = {}
    if (text := waiting_message(job, now)) is not None:
        changes["user_message"] = text
    if job.expected_by is not None:
        changes["expected_by"] = _still_expected(job, job.expected_by, now)
    at = job.waiting.next_eligible_at if job.waiting else None
    if at is not None and at <= now and job.status is not JobStatus.PENDING:
        # Its turn at the site has come.
        changes["waiting"] = None
    return job.model_copy(update=changes) if changes else job


def _still_expected(job: Job, promised: datetime, now: datetime) -> datetime | None:
    """Return by when the job will have ended: as promised, or so long after its next try; None: unknown."""
    waiting = job.waiting
    if waiting is not None and waiting.reason in ("paused", "breaker_open"):
        return None
    again = job.next_retry_at or (waiting.next_eligible_at if waiting else None)
    if again is not None and again >= promised:
        promised = again + (promised - job.created_at)
    return promised if promised > now else None


def reasons_by_stage(tx: JobsTx) -> dict[str, Literal["paused", "breaker_open"]]:
    """Return why stages do no work, by stage; those that work are left out."""
    holds = tx.holds()
    return {stage.name: hold.reason for stage in STAGES for hold in holds if _holds(hold, stage)}


def _holds(hold: Hold, stage: Stage) -> bool:
    if hold.reason == "paused":
        return hold.subject in (stage.name, EVERY_STAGE)
    return hold.subject in stage.breakers


def unknown_job() -> CallerError:
    """Return the error for an unknown job, and for another caller's."""
    return CallerError(ErrorCode.NOT_FOUND, "No such job.")


def unknown_batch() -> CallerError:
    """Return the error for an unknown batch, and for another caller's."""
    return CallerError(ErrorCode.NOT_FOUND, "No such batch.")


def _state_of(crawl: Crawl) -> CrawlState:
    return CrawlState(
        kind=crawl.kind,
        pages=crawl.pages,
        max_pages=crawl.plan.rules.max_pages,
        canceled=crawl.canceled,
    )


def _with_work(job: Job, board: ProgressBoard) -> Job:
    """Return the job with the progress of its long work; other jobs need no read of the board."""
    stage = BY_NAME.get(job.status.value)
    if stage is None or not stage.publishes or (job.chunk_count or 0) <= LONG_CHUNKS:
        return job
    work = board.get(job.job_id)
    if work is None or work.attempt != job.attempt:
        return job
    update = {"chunks_total": work.chunks_total, "chunks_done": work.chunks_done, "bytes": work.bytes}
    return job.model_copy(update={"progress": job.progress.model_copy(update=update)})


def poll_after_s(job: Job, now: datetime) -> int | None:
    """Return the seconds until the next poll, None when the job has ended.

    They grow with the time since the last change: a client that follows them sees an end at most a third
    late.
    """
    if job.status.terminal:
        return None
    quiet = (now - job.updated_at).total_seconds()
    return next((pause for pause in _PAUSES_S if quiet < pause * 3), _PAUSES_S[-1])


def is_job_id(text: str) -> bool:
    """Return whether `text` has the form of a job's id."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _encode(job: Job) -> str:
    return cursor_of([job.created_at.isoformat(), job.job_id])


def _decode(cursor: str) -> tuple[datetime, str]:
    try:
        at, job_id = values_of(cursor)
        moment = datetime.fromisoformat(at)
    except (ValueError, TypeError) as error:
        raise foreign_cursor() from error
    if moment.tzinfo is None or not isinstance(job_id, str) or not is_job_id(job_id):
        raise foreign_cursor()
    return moment, job_id


_COST: Final = (
    *("gb_s", "invocations", "api_requests", "sqs_requests", "s3_reads", "s3_writes", "dynamodb_requests"),
)
_FACTS: Final = (
    *("chunks", "chunks_embedded", "chunks_removed", "tokens", "tokens_embedded", "bytes_fetched"),
    "bytes_stored",
)
MOST_JOBS: Final = 50_000
"""About a second of work for the database."""
_DIGITS: Final = 6


def read_receipt(tx: JobsTx, wanted: JobFilter, prices: Prices) -> Receipt:
    """Return the receipt of the jobs that match; raises CallerError(validation_error) for too many."""
    found = tx.receipt(wanted, MOST_JOBS + 1)
    (whole,) = [each for each in found if each.stage is None]
    if whole.jobs > MOST_JOBS:
        raise CallerError(
            ErrorCode.VALIDATION_ERROR,
            f"More than {MOST_JOBS:,} jobs match; ask for fewer by created_after and created_before.",
            field="query.receipt",
        )
    stages = sorted((each for each in found if each.stage), key=lambda each: ORDER.get(each.stage or "", -1))
    facts: dict[str, Any] = {name: _known(whole, getattr(whole.spent, name)) for name in _FACTS}
    return Receipt(
        jobs=whole.jobs,
        unknown_jobs=whole.unknown_jobs,
        chunks_reused=_known(whole, whole.spent.chunks - whole.spent.chunks_embedded),
        stages=[_stage(each, prices) for each in stages],
        **facts,
        **_cost(whole, prices),
    )


def _stage(totals: StageTotals, prices: Prices) -> StageReceipt:
    return StageReceipt(
        stage=totals.stage or "", tries=totals.tries, wall_ms=totals.wall_ms, **_cost(totals, prices)
    )


def _cost(totals: StageTotals, prices: Prices) -> dict[str, Any]:
    cost = {name: _known(totals, round(getattr(totals.spent, name), _DIGITS)) for name in _COST}
    return {**cost, "usd": _known(totals, round(prices.of(totals.spent), _DIGITS + 4))}


def _known(totals: StageTotals, amount: float) -> float | None:
    """Return `amount`; None when none of the jobs was metered wholly."""
    return None if 0 < totals.jobs == totals.unknown_jobs else amount
