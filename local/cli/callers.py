"""`indexmill callers` and `indexmill maintenance`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    console,
    print_json,
    running_stack,
)

_COPIED_S: Final = 20.0
"""Time for which a command waits until the sweeper has copied a change."""

callers = typer.Typer(
    help="""List, link and block callers, as an operator does.

Examples:

  indexmill callers list

  indexmill callers link OLD NEW      jobs and corpora follow OLD to its new id

  indexmill callers block ID "spam"
""",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a caller, or of an alias of it.")]


@callers.command("list")
def list_callers(as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """List callers with their aliases.

    Example:

      indexmill callers list --json
    """
    rows = _act(state, "list")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        notes = [f"alias of {row['root']}"] if row["root"] != row["caller_id"] else []
        notes += [f"blocked: {row['blocked_reason']}"] if row["blocked_reason"] else []
        console().print(f"{row['caller_id']}  {'; '.join(notes)}".rstrip())


@callers.command("link")
def link(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Id that stays.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Id that becomes an alias of it.")],
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Make NEW an alias of OLD, which gets the jobs and corpora of both.

    Example:

      indexmill callers link 0123456789abcdef fedcba9876543210
    """
    (row,) = _changed(state, "link", old, new)
    linked = row["linked"]
    console().print(
        f"{new} is {linked['root']} now: {linked['jobs']} jobs, {linked['corpora']} corpora moved"
    )


@callers.command("block")
def block(
    caller_id: _Id,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Reason, kept with the caller.")],
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Refuse every request of a caller with 403 `caller_blocked`.

    Example:

      indexmill callers block 0123456789abcdef "floods the queue"
    """
    (row,) = _changed(state, "block", caller_id, reason)
    console().print(f"{row['blocked']} is blocked")


@callers.command("unblock")
def unblock(caller_id: _Id, state: StateOption = DEFAULT_STATE) -> None:
    """Serve a blocked caller again.

    Example:

      indexmill callers unblock 0123456789abcdef
    """
    (row,) = _changed(state, "unblock", caller_id)
    if row["unblocked"] is None:
        raise Failure(f"{caller_id} is not blocked", EXIT_USAGE)
    console().print(f"{row['unblocked']} is not blocked any more")


maintenance = typer.Typer(
    help="""Accept no work for a while; reads are answered as ever.

Examples:

  indexmill maintenance on "The database is being moved."

  indexmill maintenance off
""",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@maintenance.command("on")
def maintenance_on(
    message: Annotated[str, typer.Argument(metavar="TEXT", help="What callers read.")],
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Answer submits, uploads and enqueues with 503 `maintenance`.

    Returns when every function knows it, or says when that will be.

    Example:

      indexmill maintenance on "The database is being moved."
    """
    console().print(f"maintenance is on{_when_it_holds(state, message)}")


@maintenance.command("off")
def maintenance_off(state: StateOption = DEFAULT_STATE) -> None:
    """Accept work again.

    Returns when every function knows it, or says when that will be.

    Example:

      indexmill maintenance off
    """
    console().print(f"maintenance is off{_when_it_holds(state, '')}")


def _when_it_holds(state: Path, message: str) -> str:
    """Set the message and wait until every function goes by it; return when that will be if it takes long."""
    from indexmill.platform.limits.enforcer import SHARED_S

    _changed(state, "maintenance", message)
    deadline = time.monotonic() + _COPIED_S
    while not _act(state, "maintenance_is")[0]["mirrored"]:
        if time.monotonic() > deadline:
            return f": it holds {SHARED_S:.0f} s after the sweeper has copied it, which it tries each minute"
        time.sleep(0.1)
    # A function reads it again when what it knows is that old.
    time.sleep(SHARED_S)
    return ""


def _act(state: Path, name: str, *arguments: str) -> list[dict[str, Any]]:
    from sql.callers import ActError, act

    try:
        return act(running_stack(state)["database_url"], name, arguments)
    except ActError as error:
        raise Failure(str(error), EXIT_USAGE) from error


def _changed(state: Path, name: str, *arguments: str) -> list[dict[str, Any]]:
    """Do the act and run the sweeper, which copies the result to where requests read it."""
    import httpx

    rows = _act(state, name, *arguments)
    url = f"{running_stack(state)['control']}/schedules/OrchestratorSweeperEveryMinute"
    httpx.post(url, json={"fire": True}, timeout=10.0).raise_for_status()
    return rows
