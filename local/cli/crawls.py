"""`indexmill crawl` and `indexmill sitemap`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from local.cli.function_errors import function_errors_shown
from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    api_client,
    console,
    exit_with,
    print_json,
    running_stack,
)

if TYPE_CHECKING:
    from indexmill.contracts.crawl import CrawlRules
    from indexmill.contracts.http_actions import BatchSummary


class Doubt(StrEnum):
    """Repeated here, because the contracts' own modules take long to import."""

    LOGIN_REQUIRED = "login_required"
    SOFT_404 = "soft_404"


_PATTERN = "`*` is any characters; begins with / for the path, else the whole URL; may be repeated."
CorpusOption = Annotated[str | None, typer.Option(help="Corpus to index into; without it, the default one.")]
IncludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help=f"Only pages whose URL is like this. {_PATTERN}")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="No page whose URL is like this; as --include.")
]
PagesOption = Annotated[int, typer.Option(help="Most pages of it all, 1 to 1000.", min=1, max=1000)]
PriorityOption = Annotated[
    int | None, typer.Option(help="0 to 100 (50): higher starts earlier.", min=0, max=100)
]
AcceptOption = Annotated[
    list[Doubt] | None,
    typer.Option(
        metavar="CODE",
        help="Read pages that look like a log-in (login_required) or a page that does not exist (soft_404); "
        "may be repeated.",
    ),
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Metadata of the documents, in place of what they have; may be repeated.",
    ),
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all are done or failed.")]
TimeoutOption = Annotated[float, typer.Option(help="Longest wait, seconds.", min=0)]


def crawl(
    url: Annotated[str, typer.Argument(metavar="URL", help="The first page.")],
    depth: Annotated[
        int, typer.Option(help="Links from the first page to the last ones.", min=0, max=10)
    ] = 3,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    max_pages: PagesOption = 100,
    any_host: Annotated[
        bool, typer.Option("--any-host", help="Also pages of other hosts than the first page's.")
    ] = False,
    corpus: CorpusOption = None,
    priority: PriorityOption = None,
    accept: AcceptOption = None,
    metadata: MetadataOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = 900.0,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Index a page and the pages that it leads to.

    Each page is a job. To stop all of them: indexmill cancel --batch BATCH_ID.

    Examples:

      indexmill crawl https://example.com/ --depth 2

      indexmill crawl https://example.com/docs/ --include "/docs/*" --exclude "*/archive/*" --max-pages 500
    """
    from indexmill.contracts.crawl import CrawlRules

    fields: dict[str, Any] = {"depth": depth, "max_pages": max_pages, "same_host": not any_host}
    rules = _rules(CrawlRules, {**fields, "include": include or [], "exclude": exclude or []})
    options = {"priority": priority, "accept": accept, "metadata": pairs("--metadata", metadata)}
    _run("crawl", url, rules, corpus, options, timeout if wait else None, as_json=as_json, state=state)


def sitemap(
    url: Annotated[str, typer.Argument(metavar="URL", help="The sitemap: XML, its gzip, an index, lines.")],
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    max_pages: PagesOption = 100,
    corpus: CorpusOption = None,
    priority: PriorityOption = None,
    accept: AcceptOption = None,
    metadata: MetadataOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = 900.0,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Index the pages that a sitemap lists.

    Example:

      indexmill sitemap https://example.com/sitemap.xml --include "/docs/*"
    """
    from indexmill.contracts.crawl import CrawlRules

    fields = {"max_pages": max_pages, "include": include or [], "exclude": exclude or []}
    rules = _rules(CrawlRules, fields)
    options = {"priority": priority, "accept": accept, "metadata": pairs("--metadata", metadata)}
    _run("sitemap", url, rules, corpus, options, timeout if wait else None, as_json=as_json, state=state)


def pairs(option: str, given: Sequence[str] | None) -> dict[str, str] | None:
    """Return the names and values of an option that may be repeated. Raises Failure."""
    if given is None:
        return None
    for each in given:
        if "=" not in each:
            raise Failure(f"{option} {each}: write it as NAME=VALUE", EXIT_USAGE)
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def _rules(model: type[CrawlRules], fields: dict[str, Any]) -> CrawlRules:
    from pydantic import ValidationError

    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise Failure(f"{first['loc'][0]}: {first['msg']}", EXIT_USAGE) from error


def _run(
    kind: Literal["crawl", "sitemap"],
    url: str,
    rules: CrawlRules,
    corpus: str | None,
    options: dict[str, Any],
    timeout_s: float | None,
    *,
    as_json: bool,
    state: Path,
) -> None:
    """Start it and, with a time-out, wait for its end; exit when one of its jobs failed."""
    from indexmill.client import BatchTimeout

    with api_client(state, f"starting the {kind}") as api:
        start = api.crawl if kind == "crawl" else api.sitemap
        accepted = start(url, corpus, rules, **options)
        batch_id = accepted.batch_id or ""
        if timeout_s is None:
            _print_ids(accepted.job_id, batch_id, as_json=as_json)
            return
        if not as_json:
            console().print(f"{kind} {batch_id}")
        try:
            with function_errors_shown(running_stack(state)["control"]):
                summary = api.wait_batch(batch_id, timeout_s, None if as_json else _print_progress)
        except BatchTimeout as error:
            raise Failure(f"{error}; stop them with: indexmill cancel --batch {batch_id}") from error
    if as_json:
        print_json(summary.model_dump(mode="json"))
    if summary.failed:
        if not as_json:
            codes = ", ".join(f"{count} {code}" for code, count in sorted(summary.failed_codes.items()))
            console().print(f"[red]{summary.failed} failed[/]: {codes}")
        exit_with(EXIT_FAILED)


def _print_ids(job_id: str, batch_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"job_id": job_id, "batch_id": batch_id})
    else:
        console().print(batch_id)


def _print_progress(summary: BatchSummary) -> None:
    waiting = summary.by_status["pending"]
    working = summary.total - summary.done - summary.failed - waiting
    failed = f", [red]{summary.failed} failed[/]" if summary.failed else ""
    ended = f"[green]{summary.done} done[/]{failed}"
    console().print(f"{summary.total:>5} pages: {ended}, {working} at work, {waiting} waiting")
