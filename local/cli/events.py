"""`indexmill events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from local.cli.choices import sample_names
from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    console,
    print_json,
)

if TYPE_CHECKING:
    from pathlib import Path

    from local.cli.samples import SampleContext


def run(
    name: Annotated[
        str | None,
        typer.Argument(help="Event to print; without it, all are listed.", autocompletion=sample_names),
    ] = None,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Print a sample event to start from, or list all of them.

    With a running stack the events contain its keys and a page of its web site.

    Examples:

      indexmill events

      indexmill events sqs-scrape | indexmill invoke ScraperWorker -
    """
    import json

    from local.cli.samples import NAMES, SAMPLES, sample

    if name is None:
        if as_json:
            print_json({each: {"function": of.function, "about": of.about} for each, of in SAMPLES.items()})
            return
        for each, of in SAMPLES.items():
            console().print(f"{each:<14} {of.function:<20} {of.about}", markup=False)
        return
    if name not in SAMPLES:
        raise Failure(f"there is no event {name}; there are {', '.join(NAMES)}", EXIT_USAGE)
    event = sample(name, _context(state))
    if as_json:
        print_json(event)
    else:
        typer.echo(json.dumps(event, indent=2, ensure_ascii=False))


def _context(state: Path) -> SampleContext:
    from local.cli.samples import SampleContext
    from local.stack.detached import find

    info = find(state)
    if info is None:
        return SampleContext()
    return SampleContext(
        region=info["region"],
        account_id=info["account_id"],
        page=f"{info['site']}/index.html",
        api_key=info["api_key"],
        stage=info["parameters"].get("Stage", "dev"),
    )
