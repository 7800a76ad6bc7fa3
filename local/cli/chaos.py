"""`indexmill chaos`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from local.cli.terminal import EXIT_FAILED, Failure, console, exit_with

if TYPE_CHECKING:
    from rich.console import Console

    from local.faults.soak import Counts, Outcome, Plan

_PRINT_EVERY_S = 5.0


def run(
    jobs: Annotated[int, typer.Option(min=1, help="Least number of jobs to submit.")] = 200,
    kills: Annotated[int, typer.Option(min=0, help="Least number of function processes to kill.")] = 40,
    minutes: Annotated[float, typer.Option(min=0.1, help="Longest time of fault injection, minutes.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
) -> None:
    """Inject faults into a stack of its own under load, then check every invariant.

    Functions are killed at random while they process messages, the database server is killed, and the
    embedding endpoint fails. Once the stack is idle, no job may be lost, stuck, wrong or duplicated.

    Examples:

      indexmill chaos

      indexmill chaos --jobs 1000 --kills 300 --minutes 15
    """
    from local.faults.soak import Plan

    plan = Plan(jobs=jobs, kills=kills, minutes=minutes, seed=seed)
    screen = console()
    outcome = _outcome(screen, plan)
    _print_outcome(screen, outcome)
    if outcome.violations or not outcome.idle:
        exit_with(EXIT_FAILED)


def _outcome(screen: Console, plan: Plan) -> Outcome:
    from local.faults.activation import VARIABLE
    from local.faults.cloud import Cloud
    from local.faults.soak import Soak
    from local.stack.detached import StartFailed, start_detached
    from local.stack.options import StackOptions

    folder = Path(tempfile.mkdtemp(prefix="indexmill-chaos-"))
    # The account that the database server runs as, when we are root, must be able to enter the folder.
    folder.chmod(0o755)
    site = folder / "site"
    site.mkdir()
    os.environ[VARIABLE] = "on"
    try:
        options = StackOptions(folder.resolve() / "state", keep_data=False, site_root=site)
        stack = start_detached(options, bound=True)
    except StartFailed as error:
        raise Failure(f"the stack did not start: {error}") from error
    screen.print(f"[green]the cloud is ready[/]: {stack.info['gateway']}; injecting faults")
    try:
        cloud = Cloud(stack.info)
        return Soak(cloud, site, plan, _Progress(screen, plan)).run()
    finally:
        stack.stop()


class _Progress:
    """Progress output: one line that changes on a terminal, else a line now and then."""

    def __init__(self, screen: Console, plan: Plan) -> None:
        self._screen = screen
        self._plan = plan
        self._printed_at = -_PRINT_EVERY_S

    def __call__(self, counts: Counts) -> None:
        from local.faults.soak_report import line

        text = line(self._plan, counts)
        if self._screen.is_terminal:
            self._screen.print(text, end="\r", markup=False)
        elif counts.seconds - self._printed_at >= _PRINT_EVERY_S:
            self._printed_at = counts.seconds
            self._screen.print(text, markup=False)


def _print_outcome(screen: Console, outcome: Outcome) -> None:
    from local.faults.soak_report import lines

    screen.print()
    for each in lines(outcome):
        screen.print(f"  {each}", markup=False)
    if outcome.violations or not outcome.idle:
        screen.print("[red]invariants were violated[/]")
    else:
        screen.print("[green]every invariant holds[/]")
