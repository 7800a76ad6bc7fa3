"""Which dependencies a job may have, and what is said of those it may not; shared by every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from indexmill.contracts.errors import CallerError, ErrorCode


def unknown_dependency(position: int) -> CallerError:
    """Return the refusal of a job id that is unknown or somebody else's."""
    return CallerError(
        ErrorCode.VALIDATION_ERROR, "There is no such job to depend on.", field=f"body.depends_on.{position}"
    )


def circle() -> CallerError:
    """Return the refusal of jobs that would wait for themselves."""
    return CallerError(
        ErrorCode.VALIDATION_ERROR, "These jobs would wait for themselves.", field="body.depends_on"
    )


def failed_dependency(job_id: str) -> CallerError:
    """Return the refusal to retry a job while one that it depends on is failed."""
    return CallerError(
        ErrorCode.INVALID_TRANSITION,
        f"Job {job_id}, which this one depends on, has failed.",
        hint="Retry that one first.",
    )


def reaches_itself(edges: Mapping[str, Iterable[str]], start: str) -> bool:
    """Say whether following `edges` (job to its dependencies) from `start` leads back there."""
    seen: set[str] = set()
    ahead = list(edges.get(start, ()))
    while ahead:
        job_id = ahead.pop()
        if job_id == start:
            return True
        if job_id not in seen:
            seen.add(job_id)
            ahead.extend(edges.get(job_id, ()))
    return False


def waiting_for(edges: Mapping[str, Iterable[str]], ended: Iterable[str]) -> list[str]:
    """Return every job that waits for one of `ended`, directly or through others, nearest first."""
    found: dict[str, None] = {}
    ahead = list(ended)
    while ahead:
        job_id = ahead.pop(0)
        for other, wanted in edges.items():
            if job_id in wanted and other not in found:
                found[other] = None
                ahead.append(other)
    return list(found)
