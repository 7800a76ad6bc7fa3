"""`indexmill jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    JsonOption,
    StateOption,
    api_client,
    console,
    note,
    print_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.client import Client
    from indexmill.contracts.job import Job

# Repeated here, because the contracts' own modules take long to import.
Stage = Literal["scraping", "chunking", "embedding"]
Status = Literal["pending", "scraping", "chunking", "embedding", "done", "failed"]
_PAGE: Final = 200


def run(
    status: Annotated[Status | None, typer.Option(help="Only jobs with this status.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Only jobs of this corpus.")] = None,
    failed_stage: Annotated[Stage | None, typer.Option(help="Only jobs that failed in this stage.")] = None,
    limit: Annotated[int, typer.Option(help="Most jobs to list, newest first.", min=1)] = 20,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """List jobs, newest first.

    The jobs are those of the stack's first API key, which `submit` uses.

    Examples:

      indexmill jobs

      indexmill jobs --status failed --limit 5

      indexmill jobs --corpus harbour --failed-stage scraping --json
    """
    filters = {"status": status, "corpus_name": corpus, "failed_stage": failed_stage}
    with api_client(state, "listing the jobs") as api:
        # One more than is shown tells whether there are more.
        found = list(islice(pages(api, min(limit + 1, _PAGE), filters), limit + 1))
    shown = found[:limit]
    if as_json:
        print_json([job.model_dump(mode="json") for job in shown])
        return
    if shown:
        console().print(_table(shown))
    else:
        console().print("no jobs" if not any(filters.values()) else "no matching jobs")
    if len(found) > limit:
        note(f"there are more; show them with --limit {limit * 5}")


def pages(api: Client, size: int, filters: dict[str, str | None]) -> Iterator[Job]:
    """Yield all jobs that match, newest first, fetching pages on demand. Raises ApiError."""
    cursor: str | None = None
    while True:
        page = api.list(**filters, limit=size, cursor=cursor)
        yield from page.jobs
        cursor = page.next_cursor
        if cursor is None:
            return


def _table(jobs: list[Job]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("job", "status", "corpus", "submitted", "url", "", box=None)
    colours = {"done": "green", "failed": "red"}
    for job in jobs:
        status = f"[{colours.get(job.status, 'cyan')}]{job.status}[/]"
        submitted = f"{job.created_at:%Y-%m-%d %H:%M:%S}"
        corpus = escape(job.corpus_name or "default")
        table.add_row(job.job_id, status, corpus, submitted, escape(job.url), escape(_why(job)))
    return table


def _why(job: Job) -> str:
    """Return the failure, the wait reason, or nothing."""
    if job.error is not None:
        return f"{job.error.stage}: {job.error.cause or job.error.code}"
    if job.next_retry_at is not None:
        why = f" ({job.last_error.code})" if job.last_error else ""
        held = f"waits: {job.waiting.reason}" if job.waiting else "waits"
        tries = f"try {job.attempts} failed" if job.attempts else held
        return f"{tries}{why}, again at {job.next_retry_at:%H:%M:%S}"
    if job.waiting is not None:
        return f"waits: {job.waiting.reason}"
    return ""
