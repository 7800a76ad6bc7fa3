"""`indexmill replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from local.cli.ids import whole_ids
from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    Failure,
    JsonOption,
    StateOption,
    api_client,
    console,
    exit_with,
    print_error,
    print_json,
)

if TYPE_CHECKING:
    from indexmill.contracts.http_actions import JobDiff


def run(
    job_id: Annotated[
        str, typer.Argument(metavar="JOB_ID", help="Id of a job that has ended, or its beginning.")
    ],
    stored: Annotated[
        bool, typer.Option("--stored", help="Use the stored raw content instead of fetching it again.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Longest wait, seconds.", min=0)] = 300.0,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Run a job again as a new one, wait for it, and print the differences.

    Example:

      indexmill replay 3f0c8a52 --stored
    """
    from indexmill.client import WaitTimeout

    (job_id,) = whole_ids(state, [job_id])
    with api_client(state, "replaying") as api:
        replay = api.replay(job_id, stored=stored)
        try:
            (ended,) = api.wait([replay.job_id], timeout)
        except WaitTimeout as error:
            raise Failure(f"replaying failed: {error}") from error
        diff = api.diff(replay.job_id)
    if as_json:
        print_json(diff.model_dump(mode="json"))
    else:
        _show(diff)
    if ended.error is not None:
        print_error(f"it failed: {ended.user_message} See why with: indexmill trace {ended.job_id[:8]}")
        exit_with(EXIT_FAILED)


def _show(diff: JobDiff) -> None:
    screen = console()
    screen.print(f"{diff.job_id}  {diff.status}")
    for part in diff.parts:
        colour = {"same": "green", "changed": "yellow"}.get(part.verdict, "dim")
        screen.print(f"  {part.part:<8} [{colour}]{part.verdict:<8}[/] {part.why or ''}")
