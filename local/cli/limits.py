"""`indexmill limits`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from local.cli.terminal import (
    DEFAULT_STATE,
    JsonOption,
    StateOption,
    api_client,
    console,
    print_json,
)

if TYPE_CHECKING:
    from indexmill.contracts.http_actions import CallerLimits

_NONE = "none"


def run(as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """Show a caller's limits of requests and jobs, and how much of each is used.

    Examples:

      indexmill limits

      indexmill limits --json
    """
    with api_client(state, "asking for the limits") as api:
        found = api.limits()
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"tier {found.tier}, {found.pending} of at most {found.max_pending} jobs pending")
    if found.granted_scopes is not None:
        console().print(f"scopes {', '.join(found.granted_scopes) or _NONE}")
    console().print(_requests(found))
    console().print(_jobs(found))


def _requests(found: CallerLimits) -> Table:
    table = Table("requests", "kind", "limit", "window", "used", "reset", "because of", box=None)
    for each in found.requests:
        window = "" if each.window_seconds is None else f"{each.window_seconds} s"
        reset = "" if each.reset_s is None else f"in {each.reset_s} s"
        used = _number(each.used, "unknown")
        table.add_row(
            each.service, each.bucket, _number(each.limit, _NONE), window, used, reset, each.reason or ""
        )
    return table


def _jobs(found: CallerLimits) -> Table:
    table = Table("jobs", "limit", "used", "reset", box=None)
    for each in found.jobs:
        reset = "" if each.reset_at is None else f"at {each.reset_at:%H:%M:%S} UTC"
        table.add_row(each.name, _number(each.limit, _NONE), str(each.used), reset)
    return table


def _number(number: int | None, missing: str) -> str:
    return missing if number is None else f"{number:,}"
