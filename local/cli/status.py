"""`indexmill status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_NO_STACK,
    Failure,
    JsonOption,
    StateOption,
    console,
    print_json,
    running_stack,
)

_TIMEOUT_S = 5.0


def run(as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """Show processes, memory and counters of the stack.

    First what holds it back, from the tables: maintenance, pauses, breakers, incidents, dead letters. Then
    services, functions with their environments and durations, queues with their depths, and the functions'
    metrics.

    Examples:

      indexmill status

      indexmill status --json
    """
    info = running_stack(state)
    try:
        with urlopen(f"{info['control']}/status", timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback port
            found = json.load(answer)
    except (URLError, TimeoutError) as error:
        raise Failure(f"the stack on {state} does not answer ({error})", EXIT_NO_STACK) from error
    memory, known = _memory(found), _conditions(info)
    if as_json:
        print_json({**info, **found, "memory_mb": memory, "conditions": known})
    else:
        _show(info, found, memory, known)


def _conditions(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the stack's conditions; None while the database does not answer."""
    import psycopg

    from local.stack import conditions

    try:
        return dict(conditions.read(info))
    except psycopg.Error:
        return None


def _memory(found: Mapping[str, Any]) -> dict[str, float]:
    """Return PSS in MiB: each service with its children, the host with the front, and functions."""
    from local.compute.process_stats import proportional_memory_mb
    from local.stack.process_identity import descendants

    def whole(pid: int) -> float:
        return sum(proportional_memory_mb(each) for each in (pid, *descendants(pid)))

    services = {name: whole(service["pid"]) for name, service in found["services"].items() if service["pid"]}
    everything = whole(found["pid"])
    stack = proportional_memory_mb(found["pid"])
    functions = everything - stack - sum(services.values())
    memory = {**services, "stack": stack, "functions": functions, "total": everything}
    return {name: round(value, 1) for name, value in memory.items()}


def _show(
    info: Mapping[str, Any],
    found: Mapping[str, Any],
    memory: Mapping[str, float],
    known: Mapping[str, Any] | None,
) -> None:
    from local.cli import tables
    from local.stack import conditions

    screen = console()
    screen.print(f"[green]running[/] for {tables.age(found['up_s'])}, process {found['pid']}")
    screen.print(f"gateway {info['gateway']}   site {info['site']}   metrics {info['control']}/metrics")
    shown = ["the database does not answer"] if known is None else list(conditions.lines(known))
    for line in shown:
        screen.print(line, style="yellow", markup=False)
    for table in (tables.services(found, memory), tables.functions(found), tables.queues(found)):
        screen.print()
        screen.print(table)
    if found.get("metrics"):
        screen.print()
        screen.print(tables.metrics(found))
