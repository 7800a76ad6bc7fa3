"""How the jobs of one batch stand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_verbs import BatchSummary
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.read import is_job_id
from indexmill.orchestrator.verb_ports import JobVerbs


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """The batch use case."""

    verbs: JobVerbs

    def __call__(self, ctx: CallerContext, batch_id: str) -> BatchSummary:
        """Count the batch's jobs; CallerError(not_found) for an unknown one and for somebody else's."""
        lines = self.verbs.batch(ctx.caller_id, batch_id) if is_job_id(batch_id) else []
        if not lines:
            raise CallerError(ErrorCode.NOT_FOUND, "No such batch.")
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
        )
