"""`indexmill logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from local.cli.choices import function_names
from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    EXIT_NO_STACK,
    EXIT_USAGE,
    Failure,
    StateOption,
    console,
    exit_with,
    note,
)

if TYPE_CHECKING:
    from rich.console import Console

    from local.logbook.records import LogFolder, Record

_POLL_S = 0.2


def run(
    functions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FUNCTION]…",
            help="Logical ids of functions; all when not given.",
            autocompletion=function_names,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines until Ctrl-C.")] = False,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Only lines about this job.")] = None,
    request: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only one request: its X-Request-Id, or an invocation's id."),
    ] = None,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Print the functions' logs, newest last: time, function, invocation, message.

    An id may be abbreviated to a prefix. Exits with 1 when there are no lines for the job or the request.

    Examples:

      indexmill logs

      indexmill logs ScraperWorker OrchestratorResults --follow

      indexmill logs --job 0799c7d5

      indexmill logs --request 437715e7-55cf-4f02-8e66-fe63906eebbf
    """
    if not state.is_dir() and not follow:
        raise Failure(f"no stack has run on {state}; start one with: indexmill up", EXIT_NO_STACK)
    found = _Found(job, request, frozenset(functions or ()))
    logs = _opened(state, found)
    try:
        _print_all(logs, found, state, follow=follow)
    except KeyboardInterrupt:
        return
    finally:
        logs.close()
    if (job or request) and not found.lines:
        exit_with(EXIT_FAILED)


@dataclass(slots=True)
class _Found:
    """Search for log records, with its state."""

    job: str | None
    request: str | None
    functions: frozenset[str]
    lines: int = 0
    elsewhere: set[str] = field(default_factory=set)
    """Functions with matching lines that were not asked for."""

    def take(self, records: Sequence[Record]) -> Iterator[Record]:
        """Return the matching records that are to be printed."""
        for record in records:
            if self.functions and record.function not in self.functions:
                self.elsewhere.add(record.function)
                continue
            self.lines += 1
            yield record


def _opened(state: Path, found: _Found) -> LogFolder:
    """Open the logs to read. Raises Failure for an unknown function."""
    from local.logbook.records import LogFolder

    # The job's records are selected over all functions, so that the choice among functions comes last.
    logs = LogFolder(state / "logs" / "functions", () if found.job or found.request else found.functions)
    names = sorted({*logs.known(), *function_names("")})
    if unknown := sorted(found.functions - set(names)):
        raise Failure(f"there is no function {', '.join(unknown)}; there are {', '.join(names)}", EXIT_USAGE)
    return logs


def _print_all(logs: LogFolder, found: _Found, state: Path, *, follow: bool) -> None:
    from local.logbook.selection import Selection

    screen, selection = console(), Selection(found.job, found.request)
    first = True
    while True:
        for record in found.take(selection.choose(logs.new())):
            _print(screen, record)
        sys.stdout.flush()
        if first and (missing := _missing(found, logs.known(), state)):
            note(f"{missing}; waiting, stop with Ctrl-C" if follow else missing)
        first = False
        if not follow:
            return
        time.sleep(_POLL_S)


def _missing(found: _Found, known: Sequence[str], state: Path) -> str:
    """Return a sentence on what was not found and where it may be; empty when nothing is missing."""
    from local.logbook import no_match

    if found.job or found.request:
        if found.lines:
            return ""
        if found.elsewhere:
            return no_match.not_of(found.functions, found.elsewhere)
        if found.request:
            return no_match.no_request(found.request, state / "logs" / "access.jsonl")
        return no_match.no_job(found.job or "")
    if silent := found.functions - set(known):
        return no_match.not_run(silent)
    return "" if known else "no function has run yet"


def _print(screen: Console, record: Record) -> None:
    from local.logbook import show

    if not screen.is_terminal:
        sys.stdout.write(show.line(record) + "\n")
        return
    from rich.text import Text

    screen.print(Text.assemble(*show.parts(record)))
