"""`indexmill submit`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from local.cli.crawls import (
    AcceptOption,
    CorpusOption,
    MetadataOption,
    PriorityOption,
    TimeoutOption,
    WaitOption,
    pairs,
)
from local.cli.function_errors import function_errors_shown
from local.cli.ids import whole_ids
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
    note,
    print_json,
    running_stack,
)

if TYPE_CHECKING:
    from indexmill.client import Client
    from indexmill.contracts.cost import Budget
    from indexmill.contracts.job import Job

_BATCH = 100
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Make no job: show what up to five URLs are and would cost.")
]
DependsOption = Annotated[
    list[str] | None,
    typer.Option("--depends-on", metavar="JOB", help="A job that must be done first; may be repeated."),
]
NameOption = Annotated[
    str | None, typer.Option(help="Name of the one file as a document; without it, its path as given.")
]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def run(
    documents: Annotated[list[str], typer.Argument(metavar="URL|FILE…", help="URLs and files to index.")],
    corpus: CorpusOption = None,
    priority: PriorityOption = None,
    depends_on: DependsOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start new jobs beside those of the same documents in flight.")
    ] = False,
    accept: AcceptOption = None,
    metadata: MetadataOption = None,
    max_chunks: Annotated[int | None, typer.Option(help="Most chunks of each job.", min=1)] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Most bytes that each job fetches.", min=1)] = None,
    max_cost: Annotated[float | None, typer.Option(help="Most dollars that each job costs.")] = None,
    name: NameOption = None,
    content_type: Annotated[
        str | None, typer.Option(help="Media type of the files; without it, guessed from their names.")
    ] = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = True,
    timeout: TimeoutOption = 300.0,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Index URLs and files with the running stack.

    A file that is submitted again under the same name replaces its document.

    Examples:

      indexmill submit https://example.com/

      indexmill submit https://example.com/a https://example.com/b --corpus harbour --no-wait

      indexmill submit https://example.com/c --priority 90 --depends-on 0199a2c4

      indexmill submit notes.md reports/q3.pdf --corpus harbour --metadata team=quay

      indexmill submit https://example.com/shop/kettle --accept login_required

      indexmill submit --dry-run https://example.com/
    """
    options: dict[str, Any] = {
        "priority": priority,
        "depends_on": whole_ids(state, depends_on) if depends_on else None,
        "force": force,
        "accept": accept,
        "metadata": pairs("--metadata", metadata),
        "budget": _budget(max_chunks, max_bytes, max_cost),
    }
    if dry_run:
        _try_out(documents, corpus, options, state, as_json=as_json)
        return
    files = _files(documents, name)
    with api_client(state, "submitting") as api:
        job_ids = _submit(api, documents, files, corpus, content_type, options)
        if not wait:
            _print_ids(job_ids, as_json=as_json)
            return
        jobs = _ended(api, state, job_ids, timeout, None if as_json else _print_change)
    _report(jobs, as_json=as_json)


def _try_out(
    urls: Sequence[str], corpus: str | None, options: Mapping[str, Any], state: Path, *, as_json: bool
) -> None:
    """Print what the jobs of `urls` would find and cost; exit when one of them would fail."""
    with api_client(state, "the dry run") as api:
        found = api.dry_run(urls, corpus, **options)
    if as_json:
        print_json(found.model_dump(mode="json"))
    for page in () if as_json else found.pages:
        if page.error is not None:
            console().print(f"[red]{page.error.code}[/]  {page.url}  {page.error.message}")
            continue
        kind = f"{page.content_type}, {page.size or 0:,} bytes"
        console().print(f"[green]ok[/]  {page.url}  {kind}, about {page.chunks} chunks, ${page.usd or 0:.7f}")
    if any(page.error is not None for page in found.pages):
        exit_with(EXIT_FAILED)


def _ended(
    api: Client,
    state: Path,
    job_ids: Sequence[str],
    timeout_s: float,
    on_change: Callable[[Job], None] | None,
) -> list[Job]:
    """Return the jobs at their end, and print errors of their functions. Raises Failure after `timeout_s`."""
    from indexmill.client import WaitTimeout

    try:
        with function_errors_shown(running_stack(state)["control"], job_ids):
            return api.wait(job_ids, timeout_s, on_change)
    except WaitTimeout as error:
        waiting = next(job for job in error.jobs if not job.status.terminal)
        raise Failure(f"{error}; see why with: indexmill trace {waiting.job_id[:8]}") from error


def _report(jobs: Sequence[Job], *, as_json: bool) -> None:
    """Print the end of the jobs; exit when one of them failed."""
    if as_json:
        print_json([job.model_dump(mode="json") for job in jobs])
    failed = [job for job in jobs if job.status == "failed"]
    if failed and not as_json:
        console().print(f"see why with: indexmill trace {failed[0].job_id[:8]}")
    if failed:
        exit_with(EXIT_FAILED)


def _submit(
    api: Client,
    documents: Sequence[str],
    files: Mapping[str, str],
    corpus: str | None,
    content_type: str | None,
    options: Mapping[str, Any],
) -> list[str]:
    """Submit all and return the job ids in order. Raises ApiError and OSError."""
    from indexmill.contracts.content import MAX_INLINE_BYTES

    urls = [each for each in documents if each not in files]
    ids = dict(zip(urls, submit_all(api, urls, corpus, **options), strict=True))
    for each, name in files.items():
        size = Path(each).stat().st_size
        if size > MAX_INLINE_BYTES:
            note(f"uploading {each} ({size / 1e6:.1f} MB)")
        accepted = api.submit_file(Path(each), corpus, name=name, content_type=content_type, **options)
        ids[each] = accepted.job_id
    return [ids[each] for each in documents]


def _files(documents: Sequence[str], name: str | None) -> dict[str, str]:
    """Return the files among `documents`, with what each is called as a document. Raises Failure."""
    files = [each for each in dict.fromkeys(documents) if _URL.match(each) is None]
    for each in files:
        if not Path(each).is_file():
            raise Failure(f"no such file: {each} (a URL starts with http:// or https://)", EXIT_USAGE)
    if name is not None and len(files) != 1:
        raise Failure("--name is for exactly one file", EXIT_USAGE)
    called = {each: name or _name(Path(each)) for each in files}
    if len(set(called.values())) != len(files):
        raise Failure("two of the files have one name: submit them one by one, with --name", EXIT_USAGE)
    return called


def _name(file: Path) -> str:
    """Return the path as it was given; its last part where it is not below the working directory."""
    return file.name if file.is_absolute() or ".." in file.parts else file.as_posix()


def _budget(max_chunks: int | None, max_bytes: int | None, max_cost_usd: float | None) -> Budget | None:
    """Return the bounds of each job, None for none. Raises Failure."""
    from pydantic import ValidationError

    from indexmill.contracts.cost import Budget

    if max_chunks is max_bytes is max_cost_usd is None:
        return None
    try:
        return Budget(max_chunks=max_chunks, max_bytes=max_bytes, max_cost_usd=max_cost_usd)
    except ValidationError as error:
        first = error.errors()[0]
        raise Failure(f"{first['loc'][0]}: {first['msg']}", EXIT_USAGE) from error


def submit_all(
    api: Client,
    urls: Sequence[str],
    corpus: str | None,
    **options: Any,
) -> list[str]:
    """Submit any number of URLs with the client's `options`; return the job ids in order. Raises ApiError."""
    job_ids: list[str] = []
    for start in range(0, len(urls), _BATCH):
        accepted = api.submit(list(urls[start : start + _BATCH]), corpus, **options)
        job_ids += accepted.job_ids or [accepted.job_id]
    return job_ids


def _print_ids(job_ids: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"job_ids": list(job_ids)})
        return
    for job_id in job_ids:
        console().print(job_id)


def _print_change(job: Job) -> None:
    colour = {"done": "green", "failed": "red"}.get(job.status, "cyan")
    code = f" [red]{job.error.cause or job.error.code}[/]" if job.error is not None else ""
    console().print(f"{job.job_id[:8]}  [{colour}]{job.status:<9}[/] {job.url}{code}  {job.user_message}")
