"""State machine of a job: pure decision about one result, without clock, store or messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from indexmill.contracts.job import JobStatus
from indexmill.contracts.pipeline import ORDER, TRANSITIONS


class Verdict(StrEnum):
    """Position of a result relative to the job's state."""

    ADVANCE = "advance"
    FAIL = "fail"
    LATE = "already_advanced"
    """Behind the state, or a copy: nothing happens, and that is success."""
    EARLY = "early"
    """Ahead of the state: kept and looked at again, never dropped."""
    WAIT = "waiting"
    """The stage is current and waits for its next try: that is recorded, the state stays."""
    REDISPATCH = "redispatch"
    """The stage is current and was fenced out by another job's end: its message is redispatched."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and, when the job moves, where to."""

    verdict: Verdict
    to: JobStatus | None = None


_LATE = Decision(Verdict.LATE)
_EARLY = Decision(Verdict.EARLY)


def advance(status: JobStatus, attempt: int, *, stage: str, result_attempt: int, success: bool) -> Decision:
    """Decide about the result of `stage`, attempt `result_attempt`, for a job in `status` and `attempt`.

    Terminal states are final; an older attempt changes nothing; a newer attempt or a later stage than the
    job's own is early.
    """
    if result_attempt != attempt:
        return _LATE if result_attempt < attempt else _EARLY
    if status.terminal:
        return _LATE
    position, result_position = ORDER.get(status.value, -1), ORDER[stage]
    if result_position != position:
        return _LATE if result_position < position else _EARLY
    if not success:
        return Decision(Verdict.FAIL, JobStatus.FAILED)
    return Decision(Verdict.ADVANCE, JobStatus(TRANSITIONS[stage]))
