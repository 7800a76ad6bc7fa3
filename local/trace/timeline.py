"""Events of a job in order of time, and the time spent in each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from local.logbook.records import Record
from local.logbook.show import values
from local.trace.database import JobRecords, Row
from local.trace.invocations import Run, moment, runs
from local.trace.waiting import COORDINATOR, ENDS, StackStatus, seconds, waits

_HIDDEN: Final = frozenset(
    {"level", "location", "message", "timestamp", "service", "xray_trace_id", "job_id", "caller_id"}
    | {"caller_type", "tier", "request_id", "exception"}
)
_ADVICE: Final = "LAMBDA_WARNING: Unhandled exception."
"""Prefix of AWS's runtime client before each error."""
_INDENT: Final = " " * 16
_ORDER: Final = {"state": 0, "message": 1, "run": 2, "log": 3, "end": 4, "dead": 5}


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `kind` is state, message, run, log, end or dead."""

    at: datetime
    kind: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """Duration of a job in one state, in milliseconds, split into wait, work, and delay after the work.

    The parts are None where no work is on record.
    """

    name: str
    attempt: int
    total_ms: float
    wait_ms: float | None = None
    work_ms: float | None = None
    report_ms: float | None = None
    running: bool = False
    """Whether the job is in it now: the times are those so far."""
    failure: str | None = None
    """Error code with which the job failed in it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Result of `indexmill trace`."""

    job: Mapping[str, Any]
    events: Sequence[Event]
    stages: Sequence[Stage]
    total_ms: float
    """Seconds from acceptance to the last change of state, or until now."""
    waiting: Sequence[str] = ()
    """Reasons for the job's current state, in sentences."""


def timeline(records: JobRecords, log: Sequence[Record], stack: StackStatus | None = None) -> Timeline:
    """Merge everything in order; `log` are the log records of the job, in order of time."""
    stack = stack or StackStatus()
    invocations = runs(log)
    events = [
        *(_state(row) for row in records.history),
        *(event for row in records.messages for event in _message(row)),
        *(event for run in invocations for event in _run(run, records.read_at, stack)),
        *(_log_event(record) for record in log if _is_shown(record)),
        *(_dead(row) for row in records.dead_letters),
    ]
    events.sort(key=lambda event: (event.at, _ORDER[event.kind]))
    history = records.history
    began = history[0]["at"] if history else records.job["created_at"]
    last = history[-1]["at"] if history else records.job["updated_at"]
    recent = [run for run in invocations if run.began >= last]
    ended = last if records.job["status"] in ENDS else records.read_at
    return Timeline(
        records.job,
        events,
        list(_stages(records, invocations)),
        (ended - began).total_seconds() * 1e3,
        list(waits(records, recent, stack)),
    )


def _state(row: Row) -> Event:
    again = f", attempt {row['attempt']}" if row["attempt"] > 1 else ""
    before = f"{row['from_status']} → " if row["from_status"] else "accepted: "
    detail = f": {row['detail']['code']}, {row['detail']['message']}" if _has_code(row["detail"]) else ""
    text = f"{before}{row['to_status']} ({row['cause'] or 'no cause'}{again}){detail}"
    return Event(row["at"], "state", text, row["to_status"] == "failed")


def _message(row: Row) -> Iterator[Event]:
    what = f"{row['stage']} message"
    yield Event(row["created_at"], "message", f"{what} written, {row['size']} bytes")
    if row["sent_at"] is not None:
        waited = (row["sent_at"] - row["created_at"]).total_seconds() * 1e3
        tries = f", try {row['tries']}" if row["tries"] > 1 else ""
        yield Event(row["sent_at"], "message", f"{what} sent after {waited:.0f} ms{tries}")
    if row["parked_at"] is not None:
        yield Event(row["parked_at"], "message", f"{what} given up: {row['last_error']}", failed=True)


def _run(run: Run, now: datetime, stack: StackStatus) -> Iterator[Event]:
    more = f", {run.jobs} jobs at once" if run.jobs > 1 else ""
    yield Event(run.began, "run", f"{run.function} started ({run.request_id[:8]}{more})")
    if stack.ended_with(run):
        yield Event(run.began, "end", f"{run.function} was killed when its stack ended", failed=True)
    elif run.ended is None or run.report is None:
        yield Event(now, "end", f"{run.function} has been running for {seconds(now - run.began)}")
    elif run.failure is not None:
        text = f"{run.function} failed after {run.report.duration_ms:.0f} ms: {run.failure}"
        yield Event(run.ended, "end", text, failed=True)
    else:
        cold = f", after a cold start of {run.report.init_ms:.0f} ms" if run.report.init_ms else ""
        yield Event(run.ended, "end", f"{run.function} ended after {run.report.duration_ms:.0f} ms{cold}")


def _is_shown(record: Record) -> bool:
    text = record.message.strip()
    return record.stream != "platform" and not record.is_metrics and bool(text) and _ADVICE not in text


def _log_event(record: Record) -> Event:
    fields = record.fields
    failed = fields.get("level") in ("ERROR", "CRITICAL")
    if "message" not in fields:
        text = record.message.strip().replace("\n", "\n" + _INDENT)
        return Event(moment(record.at), "log", f"{record.function}: {text}", failed)
    rest = values({name: value for name, value in fields.items() if name not in _HIDDEN})
    text = f"{record.function}: {fields['message']} {rest}".rstrip()
    if trace := fields.get("exception"):
        text += "\n" + _INDENT + str(trace).replace("\n", "\n" + _INDENT)
    return Event(moment(record.at), "log", text, failed)


def _dead(row: Row) -> Event:
    text = f"dead letter in {row['queue']} after {row['receive_count']} deliveries: {row['reason']}"
    return Event(row["received_at"], "dead", text, failed=True)


def _stages(records: JobRecords, invocations: Sequence[Run]) -> Iterator[Stage]:
    history = records.history
    for before, after in zip(history, [*history[1:], None], strict=False):
        if before["to_status"] in ENDS:
            continue  # the time until a retry was requested belongs to no stage
        began, ended = before["at"], records.read_at if after is None else after["at"]
        yield Stage(
            before["to_status"],
            before["attempt"],
            max(0.0, (ended - began).total_seconds() * 1e3),
            *_parts(_work(invocations, began, ended), began, ended, running=after is None),
            running=after is None,
            failure=None if after is None else _failure(after),
        )


def _failure(row: Row) -> str | None:
    """Return the error code with which this change failed its job; None for any other change."""
    if row["to_status"] != "failed":
        return None
    return str(row["detail"]["code"]) if _has_code(row["detail"]) else "failed"


def _parts(
    work: Run | None, began: datetime, ended: datetime, *, running: bool
) -> tuple[float | None, float | None, float | None]:
    """Return milliseconds until work began, of work, and after it; only known parts of unfinished work."""
    if work is None:
        return None, None, None
    total = (ended - began).total_seconds() * 1e3
    wait = max(0.0, (work.began - began).total_seconds() * 1e3)
    if work.report is None:
        return wait, max(0.0, total - wait), None
    busy = min(work.report.duration_ms, max(0.0, total - wait))
    return wait, busy, None if running else max(0.0, total - wait - busy)


def _work(invocations: Sequence[Run], began: datetime, ended: datetime) -> Run | None:
    """Return the last invocation for the job in this time: the work of earlier ones was repeated."""
    within = [
        run
        for run in invocations
        if began <= run.began < ended and not run.function.startswith((COORDINATOR, "Audit"))
    ]
    return within[-1] if within else None


def _has_code(detail: Any) -> bool:
    return isinstance(detail, dict) and {"code", "message"} <= detail.keys()
