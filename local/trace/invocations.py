"""Invocations, assembled from their START and REPORT lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from local.logbook.records import Record, Report, parse_report

_GIVEN_BACK: Final = "message.given_back"


@dataclass(slots=True)
class Run:
    """One invocation of one function; `report` is None while it runs, or when the host was killed."""

    function: str
    request_id: str
    began: datetime
    jobs: int
    """Number of jobs in its event: they share its time."""
    ended: datetime | None = None
    report: Report | None = None
    failure: str | None = None
    """Reason why it failed; None while it has not."""
    given_back: tuple[float, str] | None = None
    """Seconds from its end until the redelivery of its message for this job, and the reason of the retry."""


def runs(records: Iterable[Record]) -> list[Run]:
    """Return the invocations among records in order of time."""
    found: dict[str, Run] = {}
    for record in records:
        if record.fields.get("message") == _GIVEN_BACK and record.request_id in found:
            after_s, reason = record.fields.get("after_s", 0.0), record.fields.get("reason", "")
            found[record.request_id].given_back = (float(after_s), str(reason))
        if record.stream != "platform" or record.request_id is None:
            continue
        if record.message.startswith("START "):
            began = moment(record.at)
            found[record.request_id] = Run(record.function, record.request_id, began, len(record.jobs))
        elif record.request_id in found and record.failure is not None:
            found[record.request_id].failure = record.failure
        elif record.request_id in found and (report := parse_report(record.message)) is not None:
            run = found[record.request_id]
            run.ended, run.report = moment(record.at), report
            run.failure = run.failure or report.status
    return list(found.values())


def moment(text: str) -> datetime:
    """Return the time of a log record."""
    return datetime.fromisoformat(text)
