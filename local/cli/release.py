"""`indexmill release`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    console,
    exit_with,
    print_json,
    running_stack,
)

_DEPLOYMENT_S = 900.0


def run(
    tree: Annotated[Path, typer.Argument(metavar="TREE", help="Folder with another template.yaml.")],
    share: Annotated[
        float, typer.Option(min=0.0, max=100.0, help="Percent of the invocations for the new versions first.")
    ] = 10.0,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long, before they get all.")] = 10.0,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Release the functions of another tree on the running stack, as a deployment does.

    Its migrations run first. Three errors of the new versions take the release back. It lasts until the next
    start of the stack.

    Example:

      git worktree add ../next && indexmill release ../next --share 20
    """
    info = running_stack(state)
    wish = {"tree": str(tree.resolve()), "share": share / 100, "seconds": seconds}
    headers = {"Content-Type": "application/json", "X-API-Key": info["ops_key"]}
    request = Request(f"{info['control']}/releases", json.dumps(wish).encode(), headers)  # noqa: S310 - our own
    try:
        with urlopen(request, timeout=_DEPLOYMENT_S) as answer:  # noqa: S310 - our own loopback port
            outcome: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        raise Failure(json.load(error)["detail"], EXIT_USAGE) from error
    if as_json:
        print_json(outcome)
    else:
        applied = ", ".join(outcome["migrations"]) or "none"
        console().print(f"migrations applied: {applied}")
        console().print("released" if outcome["released"] else f"not released: {outcome['reason']}")
    if not outcome["released"]:
        exit_with(EXIT_FAILED)
