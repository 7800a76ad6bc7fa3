"""`indexmill logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from local.cli.terminal import DEFAULT_STATE, EXIT_USAGE, Failure, StateOption

_POLL_S = 0.2


def run(
    function: Annotated[
        str | None, typer.Argument(help="Logical id of a function; all when not given.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until Ctrl-C.")] = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Print what the functions logged, a line each: time, function, message.

    Examples:

      indexmill logs

      indexmill logs ScraperWorker --follow
    """
    folder = state / "logs" / "functions"
    known = sorted(file.stem for file in folder.glob("*.jsonl"))
    if function is not None and function not in known and not follow:
        have = f"those with logs are {', '.join(known)}" if known else f"there are none in {folder} yet"
        raise Failure(f"no logs of {function}; {have}", EXIT_USAGE)
    tails: dict[Path, BinaryIO] = {}
    try:
        while True:
            for line in sorted(_new_lines(folder, function, tails)):
                sys.stdout.write(line)
            sys.stdout.flush()
            if not follow:
                return
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return
    finally:
        for tail in tails.values():
            tail.close()


def _new_lines(folder: Path, function: str | None, tails: dict[Path, BinaryIO]) -> Iterator[str]:
    """What was written since the last look; each line begins with its time, so sorting merges the files."""
    import json

    for file in folder.glob(f"{function or '*'}.jsonl"):
        tail = tails.setdefault(file, file.open("rb")) if file not in tails else tails[file]
        for raw in tail:
            record = json.loads(raw)
            request = f" {record['request_id'][:8]}" if record["request_id"] else ""
            message = record["message"].rstrip().replace("\n", "\n    ")
            yield f"{record['at']} {record['function']}{request} {message}\n"
