"""`indexmill trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    Failure,
    JsonOption,
    StateOption,
    console,
    print_json,
    running_stack,
)


def run(
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", help="The job's id, or its beginning.")],
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Show all that happened to a job, and where its time went.

    Of each stage: time in all, waiting until its function started, work, and until its report was applied.

    Examples:

      indexmill trace 0799c7d5

      indexmill trace 0799c7d5-823d-4005-9c2c-7142ea044486 --json
    """
    info = running_stack(state)
    import psycopg

    from local.logbook.records import LogFolder
    from local.logbook.selection import Selection
    from local.trace import show
    from local.trace.database import JobUnknown, load
    from local.trace.timeline import timeline

    try:
        records = load(info["database_url"], job_id)
    except JobUnknown as error:
        raise Failure(str(error)) from error
    except psycopg.Error as error:
        raise Failure(f"the stack's database does not answer: {error}") from error
    logs = LogFolder(Path(info["state"]) / "logs" / "functions")
    try:
        chosen = Selection(job=records.job["id"]).choose(logs.new())
    finally:
        logs.close()
    found = timeline(records, chosen)
    if as_json:
        print_json(show.as_json(found))
    else:
        show.show(console(), found)
