"""Shared by all commands: finding a stack, failing, and printing."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.client import Client

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_STACK: Final = 3

_WIDE: Final = 200
_SERVER_ERROR = 500
_WRONG_REQUEST: Final = (400, 422)
DEFAULT_STATE: Final = Path(__file__).resolve().parents[2] / ".indexmill"

StateOption = Annotated[
    Path,
    typer.Option("--state", metavar="DIR", help="State folder of the stack.", show_default=".indexmill/"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class Failure(Exception):
    """Raised to end the command with a sentence and an exit code."""

    def __init__(self, sentence: str, exit_code: int = EXIT_FAILED) -> None:
        """`sentence` states the problem and the next step."""
        super().__init__(sentence)
        self.exit_code = exit_code


def running_stack(state: Path) -> dict[str, Any]:
    """Return the addresses and keys of the stack on `state`. Raises Failure when there is none."""
    from local.stack.detached import find

    info = find(state)
    if info is None:
        where = "" if state == DEFAULT_STATE else f" --state {state}"
        raise Failure(f"no stack is running on {state}; start one with: indexmill up{where}", EXIT_NO_STACK)
    return info


def client(info: dict[str, Any]) -> Client:
    """Return a client with the stack's first key."""
    from indexmill.client import Client

    return Client(info["gateway"], info["api_key"])


@contextlib.contextmanager
def api_client(state: Path, what: str) -> Iterator[Client]:
    """Yield a client of the stack on `state`; an ApiError ends the command as "`what` failed".

    An error of a function is printed before. Raises Failure.
    """
    from indexmill.client import ApiError

    info = running_stack(state)
    with client(info) as api:
        try:
            yield api
        except ApiError as error:
            if error.status >= _SERVER_ERROR and error.request_id:
                from local.cli.function_errors import show_errors_behind

                show_errors_behind(info["control"], error.request_id)
            code = EXIT_USAGE if error.status in _WRONG_REQUEST else EXIT_FAILED
            hint = f"; {error.hint}" if error.hint else ""
            raise Failure(f"{what} failed: {error}{hint}", code) from error


def console() -> Console:
    """Return a console on standard output; lines are not wrapped when it is no terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE)


def print_json(document: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json.dumps(document, default=str) + "\n")
    sys.stdout.flush()


def print_error(sentence: str) -> None:
    """Print an error on standard error."""
    sys.stderr.write(f"error: {sentence}\n")


def note(sentence: str) -> None:
    """Print a note on standard error, apart from the result."""
    sys.stderr.write(f"note: {sentence}\n")
    sys.stderr.flush()


def exit_with(exit_code: int) -> NoReturn:
    """Exit the command."""
    raise typer.Exit(exit_code)
