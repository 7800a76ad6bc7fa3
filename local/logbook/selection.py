"""Selection of the log records of a job, or of a request."""

from __future__ import annotations

from collections.abc import Sequence

from local.logbook.records import Record


class Selection:
    """Selects records by job or by request, each given by its id or a prefix.

    Call it with batches in order of time: an invocation belongs to a job once its event or a line of it names
    the job, also when it was invoked by one that does; its other lines are then selected too, if they are
    in the same batch or a later one.
    """

    def __init__(self, job: str | None = None, request: str | None = None) -> None:
        """Select by `job`, `request` or both; None means any."""
        self._job = job
        self._request = request
        self._invocations: set[str] = set()
        self._traces: set[str] = set()

    def choose(self, records: Sequence[Record]) -> list[Record]:
        """Return the matching records of one batch."""
        if self._job is None and self._request is None:
            return list(records)
        # Two passes: an invoked function may have logged before its caller named the job.
        for _ in range(2):
            for record in records:
                if record.request_id and self._names_it(record):
                    self._invocations.add(record.request_id)
                    self._traces.add(trace_root(record.request_id))
        return [record for record in records if self._belongs(record)]

    def _names_it(self, record: Record) -> bool:
        # A function invoked for several jobs names them in its event; the call may be for another job.
        for_others = self._job is not None and record.jobs
        if record.trace is not None and record.trace in self._traces and not for_others:
            return True
        if self._job is not None and any(
            job.startswith(self._job) for job in (*record.jobs, str(record.fields.get("job_id", "")))
        ):
            return True
        ids = (record.request_id, record.gateway_request_id, record.fields.get("request_id"))
        return self._request is not None and any(str(each).startswith(self._request) for each in ids if each)

    def _belongs(self, record: Record) -> bool:
        if record.request_id not in self._invocations:
            return False
        other = record.fields.get("job_id")
        # One invocation processes several jobs: a line that names another job belongs to that one.
        return self._job is None or not other or str(other).startswith(self._job)


def trace_root(request_id: str) -> str:
    """Return the trace that an invocation starts for functions it invokes; None if it continues one."""
    digits = request_id.replace("-", "")
    return f"1-{digits[:8]}-{digits[8:]}"
