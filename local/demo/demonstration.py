"""Steps of the demonstration on a running stack."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from indexmill.client import Client, WaitTimeout
from local.cli.receipts import summary
from local.cli.results import print_results
from local.cli.submit import submit_all
from local.demo.checks import differences, outcome, ranking_problem
from local.demo.stage_bars import StageBars
from local.site.catalogue import PAGES, QUERIES

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.contracts.job import Job

DEADLINE_S: Final = 120.0
_TOP: Final = 3


def demonstrate(
    screen: Console, info: dict[str, Any], urls: Sequence[str], corpus: str | None
) -> tuple[list[str], str]:
    """Index `urls`, or the built-in site and search it; return the problems, a sentence each, and a receipt.

    Raises ApiError.
    """
    own_site = not urls
    wanted = [info["site"] + page.path for page in PAGES] if own_site else list(urls)
    with Client(info["gateway"], info["api_key"]) as client:
        began = time.monotonic()
        jobs, late = _index(screen, client, wanted, corpus)
        seconds = time.monotonic() - began
        _print_failures(screen, jobs)
        chunks = sum(job.chunk_count or 0 for job in jobs)
        done = sum(job.status == "done" for job in jobs)
        screen.print(
            f"[bold]{done} of {len(jobs)} documents indexed, {chunks} chunks, in {seconds:.1f} s[/] "
            f"(the stack was ready after {info['ready_s']:.1f} s)"
        )
        receipt = summary(client.receipt(**_filters(jobs)))
        if late is not None:
            return [late], receipt
        if own_site:
            problems = differences(info["site"], jobs)
            return problems + _search(screen, client, info["site"], corpus), receipt
    return [] if done else ["none of the documents could be indexed"], receipt


def _index(
    screen: Console, client: Client, urls: Sequence[str], corpus: str | None
) -> tuple[list[Job], str | None]:
    """Return the finished jobs, and a sentence when some did not finish in time."""
    screen.print(f"indexing {len(urls)} document{'s' if len(urls) > 1 else ''}")
    with StageBars(screen, len(urls)) as bars:
        try:
            return client.wait(submit_all(client, urls, corpus), DEADLINE_S, bars.update), None
        except WaitTimeout as error:
            open_ = ", ".join(f"{job.url} ({job.status})" for job in error.jobs if not job.status.terminal)
            return error.jobs, f"{error}: {open_}"


def _filters(jobs: Sequence[Job]) -> dict[str, str | None]:
    """Return the filters that choose `jobs`; those of one batch leave out what the sweeper has read again."""
    batches = {job.batch_id for job in jobs}
    if len(batches) == 1:
        return {"batch_id": batches.pop()}
    first = min(job.created_at for job in jobs).isoformat()
    return {"corpus_name": jobs[0].corpus_name, "created_after": first}


def _print_failures(screen: Console, jobs: Sequence[Job]) -> None:
    failed = [job for job in jobs if job.status == "failed"]
    if failed:
        screen.print("[bold]not indexed[/]")
    for job in failed:
        screen.print(f"  [red]{outcome(job)}[/]  {job.url}\n     {job.user_message}")


def _search(screen: Console, client: Client, site: str, corpus: str | None) -> list[str]:
    problems = []
    for query, path in QUERIES:
        found = client.search(query, corpus, _TOP)
        screen.print(f"[bold]search[/] {query}  [dim]{found.query_ms:.0f} ms[/]")
        print_results(screen, found)
        if problem := ranking_problem(found, site + path):
            problems.append(f"{query!r}: {problem}")
    return problems
