"""Reasons why a job is not terminal yet, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from local.trace.database import JobRecords, Row
from local.trace.invocations import Run

COORDINATOR: Final = "Orchestrator"
"""Prefix of functions that advance the job."""
_APPLIES: Final = "OrchestratorResults"
ENDS: Final = frozenset({"done", "failed"})
_WORKERS: Final = {
    "scraping": "ScraperWorker",
    "chunking": "ChunkingWorker",
    "embedding": "EmbeddingWorker",
}
"""Function that consumes a stage's queue."""
_FIRST: Final = "scraping"
"""Stage whose pause holds back what has not been started."""
_BREAKERS: Final = {"embedding": ("embedding", "index")}
"""Breakers that hold a stage back."""
_SHORT: Final = {"ScrapeVisibility": (5, 30)}
"""Timeout and visibility timeout for a consumer under a debugger, by the parameter of the visibility."""
_SHORT_OTHERS: Final = (10, 60)
_SWEEPER: Final = "OrchestratorSweeper tries again"
_EMPTY: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class StackStatus:
    """Status of the running stack, beside database and logs; empty when it does not answer."""

    up_since: datetime | None = None
    """Start of the stack: an invocation that began before it and has no end was killed."""
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Event sources in `/status`."""

    def ended_with(self, run: Run) -> bool:
        """Return whether the run has no end because its stack ended."""
        return run.ended is None and self.up_since is not None and run.began < self.up_since

    def source_of(self, function: str) -> Mapping[str, Any]:
        """Return the event source of a function; empty for none."""
        return next((each for each in self.sources.values() if each.get("function") == function), _EMPTY)


def waits(records: JobRecords, recent: Sequence[Run], stack: StackStatus) -> Iterator[str]:
    """Return the reasons for the job's current state; nothing for a terminal one.

    `recent` are its invocations since its current stage began, in order of time.
    """
    job = records.job
    if job["status"] in ENDS:
        return
    if job["status"] == "pending":
        yield from _pending(records)
        return
    message = _current_message(records)
    last = _last(recent, _WORKERS.get(job["status"], ""))
    held = list(_held(records, job["status"]))
    if last is not None and last.ended is None and not stack.ended_with(last):
        yield f"{last.function} has been processing it for {seconds(records.read_at - last.began)}"
    elif held:
        yield from held
    elif message is not None and message["sent_at"] is None:
        yield _unsent(message)
    elif last is None:
        yield f"no function has received its {job['status']} message yet"
        yield from _off(stack.source_of(_WORKERS.get(job["status"], "")))
    else:
        yield from _after(last, recent, records, stack)


def _pending(records: JobRecords) -> Iterator[str]:
    """Name the pauses that hold the job's start back, or else its site, or what else it waits for."""
    job = records.job
    if held := list(_held(records, _FIRST)):
        yield from held
    elif job.get("blocked_by") == "domain":
        again = (
            f"; it starts {_at(job['site_at'], records.read_at)} at the earliest"
            if job.get("site_at")
            else ""
        )
        yield f"{_of_site(job, 'domain_failing' if job.get('site_failing') else 'domain_busy')}{again}"
    elif job.get("blocked_by"):
        yield f"it was accepted and has not been started: {job['blocked_by']}"
    else:
        yield "it was accepted and has not been started; indexmill jobs --status pending shows why"


def _held(records: JobRecords, stage: str) -> Iterator[str]:
    """Name the pauses and open breakers that hold the stage back."""
    for row in records.holds:
        since = f"since {row['since']:%H:%M:%S} UTC"
        if row["kind"] == "paused" and row["subject"] in (stage, "*"):
            yield f"an operator has paused {stage} {since}: {row['why']}"
        elif row["kind"] == "breaker_open" and row["subject"] in _BREAKERS.get(stage, ()):
            yield (
                f"{stage} waits for its breaker {row['subject']!r}, which has been open {since}: it is "
                "probed every 30 s, and the job goes on by itself"
            )


def _after(last: Run, recent: Sequence[Run], records: JobRecords, stack: StackStatus) -> Iterator[str]:
    """Explain what follows an invocation that ended without advancing the job."""
    now, job = records.read_at, records.job
    if last.failure is not None or stack.ended_with(last):
        yield from _hidden(last, stack, now)
        return
    again, why = job["next_retry_at"], job["retry_cause"]
    if last.given_back is not None and last.ended is not None:
        after_s, why = last.given_back
        again = last.ended + timedelta(seconds=after_s)
    if again is not None:
        yield f"{_reason(job, why)}; the next try is {_at(again, now)}"
        return
    applying = _last([run for run in recent if run.began >= last.began], _APPLIES)
    if applying is not None and (applying.failure is not None or stack.ended_with(applying)):
        yield from _hidden(applying, stack, now)
    else:
        yield f"{last.function} has finished, and its result has not been applied yet"


def _reason(job: Mapping[str, Any], why: str) -> str:
    """Say why the job waits: its site, or the try that failed, with the error that a person needs."""
    last = job.get("last_error") or {}
    told = f" ({last['code']}: {last['message']})" if last else ""
    if why in ("domain_failing", "domain_busy"):
        return _of_site(job, why, told)
    tries = f"try {job['tries']} failed" if job["tries"] else "it was returned to the queue"
    return f"{tries}{told or f' ({why})'}"


def _of_site(job: Mapping[str, Any], why: str, told: str = "") -> str:
    site = urlsplit(job["canonical_url"] or job["url"]).netloc
    if why == "domain_failing":
        return f"its site {site} is left alone after failures{told}"
    return f"its site {site} gets as many requests as it may"


def _last(recent: Sequence[Run], function: str) -> Run | None:
    """Return the last run of the function; others, as the audit's, have nothing to do with where a job is."""
    found = [run for run in recent if run.function == function]
    return found[-1] if found else None


def _current_message(records: JobRecords) -> Row | None:
    job = records.job
    of_now = [
        row
        for row in records.messages
        if row["stage"] == job["status"] and row["attempt"] == job["attempt"] and row["parked_at"] is None
    ]
    return of_now[-1] if of_now else None


def _unsent(message: Row) -> str:
    what = f"its {message['stage']} message is not sent yet"
    if not message["tries"]:
        return f"{what} ({message['last_error']}); {_SWEEPER}" if message["last_error"] else what
    return f"{what}: {message['tries']} tries failed, the last by {message['last_error']}; " + _SWEEPER


def _hidden(last: Run, stack: StackStatus, now: datetime) -> Iterator[str]:
    """Explain that the message of a failed invocation is hidden until its visibility timeout."""
    reason = last.failure or "the stack ended meanwhile"
    source = stack.source_of(last.function)
    if not source:
        yield f"{last.function} failed: {reason}"
        return
    visible_at = last.began + timedelta(seconds=source["visibility_s"])
    yield f"{last.function} failed: {reason}"
    if visible_at > now:
        yield (
            f"its message is in flight in {source['queue']}, with a visibility timeout of "
            f"{source['visibility_s']} s: it is redelivered {_at(visible_at, now)} at the latest, at once "
            "when the code is edited"
        )
        parameter = source.get("visibility_parameter")
        timeout_s, short_s = _SHORT.get(parameter or "", _SHORT_OTHERS)
        if parameter and source["visibility_s"] > short_s:
            timeout = parameter.replace("Visibility", "Timeout")
            given = f"--parameter {timeout}={timeout_s} --parameter {parameter}={short_s}"
            yield f"to wait less next time: indexmill up {given}"
    yield from _off(source)


def _off(source: Mapping[str, Any]) -> Iterator[str]:
    if not source.get("enabled", True):
        yield f"nothing consumes {source['queue']} now: its source is disabled"


def _at(moment: datetime, now: datetime) -> str:
    return f"at {moment:%H:%M:%S} UTC (in {seconds(moment - now)})"


def seconds(length: timedelta) -> str:
    """Format a duration in seconds."""
    found = max(0.0, length.total_seconds())
    return f"{found:.1f} s" if found < 10 else f"{found:.0f} s"
