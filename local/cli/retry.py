"""`indexmill retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from local.cli.ids import whole_ids
from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    api_client,
    console,
    note,
    print_json,
)

if TYPE_CHECKING:
    from indexmill.client import Client


def run(
    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="JOB_ID…", help="Ids, or their beginnings.")
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="All failed jobs of this corpus.")] = None,
    stage: Annotated[str | None, typer.Option(help="All that failed in this stage.")] = None,
    code: Annotated[str | None, typer.Option(help="All that failed with this code.")] = None,
    batch: Annotated[str | None, typer.Option(help="All failed jobs that were submitted together.")] = None,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Retry failed jobs from the stage that failed: given ids, or all that match.

    Examples:

      indexmill retry 3f0c8a52

      indexmill retry --code max_retries_exceeded --corpus harbour

    Of those that match, jobs with a permanent failure (such as a missing page) are left out, unless --code
    names it.
    """
    filters = {"corpus_name": corpus, "failed_stage": stage, "code": code, "batch_id": batch}
    given = {name: value for name, value in filters.items() if value is not None}
    if bool(job_ids) == bool(given):
        raise Failure("give job ids or a filter option", EXIT_USAGE)
    job_ids = whole_ids(state, job_ids or [])
    if batch is not None:
        (given["batch_id"],) = whole_ids(state, [batch], "batch")
    with api_client(state, "retrying") as api:
        report = _by_name(api, job_ids) if job_ids else api.retry_all(**given).model_dump()
    if as_json:
        print_json(report)
        return
    for job_id in report["retried"]:
        console().print(f"{job_id}  retried")
    for job in report["skipped"]:
        console().print(f"{job['job_id']}  [yellow]skipped:[/] {job['reason']}")
    if not report["retried"] and not report["skipped"]:
        note("no failed job matches")
    elif not report["retried"] and code is None:
        note("to retry permanent failures too, give their --code")
    if report["more"]:
        again = "run it again" if report["retried"] else "narrow them by another option"
        note(f"there are more: {again}")


def _by_name(api: Client, job_ids: list[str]) -> dict[str, Any]:
    return {"retried": [api.retry(job_id).job_id for job_id in job_ids], "skipped": [], "more": False}
