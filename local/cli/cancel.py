"""`indexmill cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    JsonOption,
    StateOption,
    api_client,
    console,
    print_json,
)


def run(
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", help="Whole id of the job.")],
    reason: Annotated[str, typer.Option(help="Reason, stored with the job.")] = "canceled by hand",
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Cancel a job; nothing of it is published after that.

    Example:

      indexmill cancel 3f0c8a52-… --reason "wrong page"
    """
    with api_client(state, "canceling") as api:
        job = api.cancel(job_id, reason)
    if as_json:
        print_json(job.model_dump(mode="json"))
    else:
        console().print(f"{job.job_id}  {job.user_message}")
