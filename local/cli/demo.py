"""`indexmill demo`."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from local.cli.terminal import EXIT_FAILED, Failure, console, exit_with, print_error

if TYPE_CHECKING:
    from rich.console import Console


def run(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="[URL]…", help="URLs to index instead of the built-in web site."),
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="Corpus to index into.")] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Use, and keep, this state folder.")
    ] = None,
) -> None:
    """Index a small web site on a stack of its own, check the results and search it.

    On a terminal the stack runs until Ctrl-C, to be tried out; elsewhere it is stopped at once.

    Examples:

      indexmill demo

      indexmill demo https://example.com/
    """
    from indexmill.client import ApiError
    from local.demo.demonstration import demonstrate

    signal.signal(signal.SIGTERM, _end)
    screen = console()
    try:
        with _stack(screen, state) as info:
            problems, receipt = demonstrate(screen, info, urls or [], corpus)
            for problem in problems:
                print_error(problem)
            if not problems:
                screen.print("[green]everything is as expected[/]" if not urls else "[green]done[/]")
            screen.print(receipt, markup=False, highlight=False, soft_wrap=True)
            if screen.is_terminal and sys.stdin.isatty():
                _print_next_steps(screen, info)
            if problems:
                exit_with(EXIT_FAILED)
    except ApiError as error:
        raise Failure(f"the demo failed: {error}") from error
    except KeyboardInterrupt:
        exit_with(EXIT_FAILED)


@contextlib.contextmanager
def _stack(screen: Console, state: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the stack that runs on `state`, or else a new one that ends with the block."""
    from local.stack.detached import StartFailed, find, start_detached
    from local.stack.options import StackOptions

    began = time.monotonic()
    found = find(state) if state is not None else None
    if found is not None:
        yield found
        return
    folder = state or Path(tempfile.mkdtemp(prefix="indexmill-demo-"))
    options = StackOptions(folder.resolve(), keep_data=state is not None, began=began)
    try:
        with screen.status("starting the cloud…"):
            stack = start_detached(options, bound=True)
    except StartFailed as error:
        raise Failure(f"the stack did not start: {error}") from error
    try:
        screen.print(
            f"[green]the cloud is ready[/] in {stack.info['ready_s']:.1f} s: {stack.info['gateway']}"
        )
        yield stack.info
    finally:
        stack.stop()


def _print_next_steps(screen: Console, info: dict[str, Any]) -> None:
    """Print commands to try, and wait for Ctrl-C."""
    head = f"-H 'X-API-Key: {info['api_key']}' -H 'Content-Type: application/json'"
    screen.print(
        f"\n[bold]try it[/] (stop with Ctrl-C)\n  gateway  {info['gateway']}\n  site     {info['site']}"
    )
    screen.print(f"  key      {info['api_key']}\n  ops key  {info['ops_key']}")
    screen.print(
        f"  Postgres {info['database_url']}\n  logs     indexmill logs --state {info['state']} --follow"
    )
    lines = (
        f"""curl {head} -d '{{"url": "https://example.com/"}}' {info["gateway"]}/orchestrator/jobs""",
        f"""curl {head} {info["gateway"]}/orchestrator/jobs?limit=5""",
        f"""curl {head} -d '{{"query": "when is the library open"}}' {info["gateway"]}/embedding/search""",
    )
    for line in lines:
        screen.print(f"  {line}", markup=False)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()
    screen.print("stopping")


def _end(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
