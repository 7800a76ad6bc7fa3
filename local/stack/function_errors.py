"""Errors of functions as one line each, for the terminal of `up` and for commands that wait for jobs."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from local.compute.log_files import LogRecord
from local.stack.preparation import REPOSITORY

_KEPT: Final = 200
_QUIET_S: Final = 60.0
"""The same error is reported once in this time; each is kept."""
_MOST_OPEN: Final = 1000
_REFUSAL: Final = "Exception: Unauthorized"
"""How an authorizer says 401 to API Gateway: no error of its code."""


@dataclass(frozen=True, slots=True)
class FunctionError:
    """One failed invocation."""

    number: int
    """Counts the errors since the stack's start."""
    function: str
    error: str
    place: str | None
    """`file:line`, below the repository where it is in there."""
    request_id: str
    jobs: tuple[str, ...]
    """Whose messages the invocation had."""


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
        self._open: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """Jobs of the invocations in flight, by request id."""
        self._recent: deque[FunctionError] = deque(maxlen=_KEPT)
        self._reported: dict[tuple[str, str, str | None], float] = {}
        self._count = 0

    def on_log(self, record: LogRecord) -> None:
        """Take one log record; quick, and never raises."""
        if record.stream != "platform" or record.request_id is None:
            return
        if record.message.startswith("START "):
            self._open[record.request_id] = tuple(record.more.get("jobs", ()))
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        elif record.message.startswith("END "):
            jobs = self._open.pop(record.request_id, ())
            if (error := record.more.get("failure")) not in (None, _REFUSAL):
                self._add(record.function, record.request_id, error, record.more.get("place"), jobs)

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the errors after the one with this number, oldest first."""
        return [asdict(each) for each in self._recent if each.number > number]

    def _add(
        self, function: str, request_id: str, error: str, place: str | None, jobs: tuple[str, ...]
    ) -> None:
        self._count += 1
        shown = place.removeprefix(self._root) if place else None
        found = FunctionError(self._count, function, error, shown, request_id, jobs)
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
