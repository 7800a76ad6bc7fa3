"""Errors of functions as one line each, for the terminal of `up` and for commands that wait for jobs."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from local.compute.error_documents import last_place, shortened
from local.compute.log_files import LogRecord
from local.logbook.records import fields_of
from local.stack.preparation import REPOSITORY

_KEPT: Final = 200
_QUIET_S: Final = 60.0
"""The same error is reported once in this time; each is kept."""
_MOST_OPEN: Final = 1000
_LOGGED: Final = ('"exception"', '"stackTrace"')
"""One of these is in each line with a traceback."""
_UNEXPECTED: Final = (None, "internal_error")
"""Codes of errors in the code, not of services that it uses."""
_REFUSAL: Final = "Exception: Unauthorized"
"""How an authorizer says 401 to API Gateway: no error of its code."""


@dataclass(frozen=True, slots=True)
class FunctionError:
    """One failed invocation, or an exception that the function logged."""

    number: int
    """Counts the errors since the stack's start."""
    function: str
    error: str
    place: str | None
    """`file:line`, below the repository where it is in there."""
    request_id: str
    jobs: tuple[str, ...]
    """Whose messages the invocation had."""
    gateway_request_id: str | None = None
    """Of the request that it answered."""


@dataclass(frozen=True, slots=True)
class _Invocation:
    jobs: tuple[str, ...] = ()
    gateway_request_id: str | None = None


class FunctionErrors:
    """Listens to the functions' logs."""

    def __init__(
        self,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        root: Path = REPOSITORY,
    ) -> None:
        """`report` gets a line for each new error; paths below `root` are shown from there on."""
        self._report = report
        self._clock = clock
        self._root = f"{root}/"
        self._open: OrderedDict[str, _Invocation] = OrderedDict()
        """Invocations in flight, by request id."""
        self._recent: deque[FunctionError] = deque(maxlen=_KEPT)
        self._reported: dict[tuple[str, str, str | None], float] = {}
        self._count = 0

    def on_log(self, record: LogRecord) -> None:
        """Take one log record; quick, and never raises."""
        if record.request_id is None:
            return
        if record.stream != "platform":
            if any(each in record.message for each in _LOGGED):
                self._logged(record, record.request_id)
        elif record.message.startswith("START "):
            jobs = tuple(record.more.get("jobs", ()))
            self._open[record.request_id] = _Invocation(jobs, record.more.get("gateway_request_id"))
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        elif record.message.startswith("END "):
            of = self._open.pop(record.request_id, _Invocation())
            if (error := record.more.get("failure")) not in (None, _REFUSAL):
                self._add(record.function, record.request_id, error, record.more.get("place"), of)

    def _logged(self, record: LogRecord, request_id: str) -> None:
        """Add an exception that the function handled, as one of a job among others."""
        fields = fields_of(record.message)
        trace = fields.get("exception")
        # What it raises, the runtime logs too, without a logger.
        own = "service" in fields or "location" in fields
        if not isinstance(trace, str) or not own or fields.get("level") not in ("ERROR", "CRITICAL"):
            return
        if fields.get("code") not in _UNEXPECTED:
            return
        of = self._open.get(request_id, _Invocation())
        if job := fields.get("job_id"):
            of = replace(of, jobs=(str(job),))
        self._add(record.function, request_id, shortened(_raised(trace)), last_place(trace), of)

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the errors after the one with this number, oldest first."""
        return [asdict(each) for each in self._recent if each.number > number]

    def _add(self, function: str, request_id: str, error: str, place: str | None, of: _Invocation) -> None:
        self._count += 1
        shown = place.removeprefix(self._root) if place else None
        ids = (request_id, of.jobs, of.gateway_request_id)
        found = FunctionError(self._count, function, error, shown, *ids)
        self._recent.append(found)
        now, kind = self._clock(), (function, error, shown)
        if now - self._reported.get(kind, -_QUIET_S) < _QUIET_S:
            return
        if len(self._reported) >= _KEPT:
            self._reported.clear()
        self._reported[kind] = now
        self._report(sentence(asdict(found), f"logs --request {request_id}"))


def sentence(error: Mapping[str, Any], command: str) -> str:
    """Return one line about the fields of a FunctionError; `command` of indexmill shows more."""
    where = f" at {error['place']}" if error["place"] else ""
    return f"{error['function']} failed{where}: {error['error']} (see more: indexmill {command})"


def _raised(trace: str) -> str:
    """Return the line of a traceback that names the exception: the first one after the last frame."""
    *_, after = trace.rpartition("\n  File ")
    return next((line for line in after.splitlines()[1:] if line and not line.startswith(" ")), after)
