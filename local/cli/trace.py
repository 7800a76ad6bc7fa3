"""`indexmill trace`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.request import urlopen

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

if TYPE_CHECKING:
    from indexmill.contracts.cost import Receipt
    from local.trace.waiting import StackStatus

_TIMEOUT_S = 5.0


def run(
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", help="The job's id, or its beginning.")],
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Show the history of a job and the time spent in each stage.

    For each stage: total time, wait until its function started, work, and delay until its result was applied.
    For a job in progress: what it waits for. At the end its receipt: what it used and cost so far.

    Examples:

      indexmill trace 0799c7d5

      indexmill trace 0799c7d5-823d-4005-9c2c-7142ea044486 --json
    """
    info = running_stack(state)
    import psycopg

    from local.cli.receipts import receipt_lines
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
    found = timeline(records, chosen, _stack_status(info["control"], records.read_at))
    receipt = _receipt(info, records.job)
    if as_json:
        print_json({**show.as_json(found), "receipt": receipt.model_dump()})
        return
    screen = console()
    show.show(screen, found)
    screen.print()
    for line in receipt_lines(receipt):
        screen.print(line, markup=False, highlight=False)


def _receipt(info: dict[str, Any], job: dict[str, Any]) -> Receipt:
    """Return the job's receipt, which is read from the database: its functions may be the problem."""
    from indexmill.contracts.cost import Prices
    from indexmill.orchestrator.queries.jobs import read_receipt
    from indexmill.orchestrator.store.jobs import JobStore
    from indexmill.orchestrator.store.queries import JobFilter
    from indexmill.platform.postgres.database import Database

    prices = Prices.parse(info["parameters"].get("Prices", ""))
    wanted, database = JobFilter(job["caller_id"], job_id=job["id"]), Database(info["database_url"])
    try:
        return JobStore(database).read(lambda tx: read_receipt(tx, wanted, prices))
    finally:
        database.close()


def _stack_status(control: str, now: datetime) -> StackStatus:
    """Return the running stack's status of its queues; empty when it does not answer, which is no error."""
    from local.trace.waiting import StackStatus

    try:
        with urlopen(f"{control}/status", timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback port
            found = json.load(answer)
    except (OSError, ValueError):
        return StackStatus()
    return StackStatus(now - timedelta(seconds=found["up_s"]), found.get("sources", {}))
