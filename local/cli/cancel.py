"""`indexmill cancel`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from local.cli.ids import whole_ids
from local.cli.terminal import (
    DEFAULT_STATE,
    JsonOption,
    StateOption,
    api_client,
    console,
    print_json,
)


def run(
    job_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the job, or of the batch, or its beginning.")
    ],
    reason: Annotated[str, typer.Option(help="Reason, stored with the job.")] = "canceled by hand",
    batch: Annotated[
        bool, typer.Option("--batch", help="Cancel a batch: all its jobs; a crawl gets no more.")
    ] = False,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Cancel a job, or a batch; nothing of it is published after that.

    Examples:

      indexmill cancel 3f0c8a52 --reason "wrong page"

      indexmill cancel --batch 9a40c1f2
    """
    (job_id,) = whole_ids(state, [job_id], "batch" if batch else "job")
    if batch:
        _cancel_batch(job_id, reason, state, as_json=as_json)
        return
    with api_client(state, "canceling") as api:
        job = api.cancel(job_id, reason)
    if as_json:
        print_json(job.model_dump(mode="json"))
    else:
        console().print(f"{job.job_id}  {job.user_message}")


def _cancel_batch(batch_id: str, reason: str, state: Path, *, as_json: bool) -> None:
    with api_client(state, "canceling") as api:
        summary = api.cancel_batch(batch_id, reason)
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        console().print(f"{batch_id}  {summary.done} done, {summary.failed} failed or canceled")
