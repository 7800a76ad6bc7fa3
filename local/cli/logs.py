"""`indexmill logs`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from local.cli.choices import function_names
from local.cli.terminal import DEFAULT_STATE, EXIT_USAGE, Failure, StateOption, console

if TYPE_CHECKING:
    from rich.console import Console

    from local.logbook.records import LogFolder, Record
    from local.logbook.selection import Selection

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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until Ctrl-C.")] = False,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Only what was done for this job.")] = None,
    request: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only one request: its X-Request-Id, or an invocation's id."),
    ] = None,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Print what the functions logged, newest last: time, function, invocation, message.

    An id may be cut short to its beginning.

    Examples:

      indexmill logs

      indexmill logs ScraperWorker OrchestratorResults --follow

      indexmill logs --job 0799c7d5

      indexmill logs --request 437715e7-55cf-4f02-8e66-fe63906eebbf
    """
    from local.logbook.records import LogFolder
    from local.logbook.selection import Selection

    folder = state / "logs" / "functions"
    # Who belongs to a job is known from all functions, so that the choice among them comes last.
    logs = LogFolder(folder, [] if job or request else functions or [])
    known = logs.known()
    if not follow and (unknown := [each for each in functions or [] if each not in known]):
        have = f"those with logs are {', '.join(known)}" if known else f"there are none in {folder} yet"
        raise Failure(f"no logs of {', '.join(unknown)}; {have}", EXIT_USAGE)
    try:
        _print_all(logs, Selection(job, request), frozenset(functions or ()), follow=follow)
    except KeyboardInterrupt:
        return
    finally:
        logs.close()


def _print_all(logs: LogFolder, selection: Selection, functions: frozenset[str], *, follow: bool) -> None:
    screen = console()
    while True:
        for record in selection.choose(logs.new()):
            if not functions or record.function in functions:
                _print(screen, record)
        sys.stdout.flush()
        if not follow:
            return
        time.sleep(_POLL_S)


def _print(screen: Console, record: Record) -> None:
    from local.logbook import show

    if not screen.is_terminal:
        sys.stdout.write(show.line(record) + "\n")
        return
    from rich.text import Text

    screen.print(Text.assemble(*show.parts(record)))
