"""`indexmill delete`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    api_client,
    console,
    print_json,
)

if TYPE_CHECKING:
    from indexmill.client import Client

_ID = re.compile(r"[0-9a-f]{64}")
_LONGEST_S = 180.0
"""The sweeper ends a deletion within a minute after its last row."""


def run(
    document: Annotated[
        str, typer.Argument(metavar="DOCUMENT", help="URL, name of a submitted file, or document id.")
    ] = "",
    corpus: Annotated[str | None, typer.Option(help="Corpus; without it the default one.")] = None,
    prefix: Annotated[
        str, typer.Option(metavar="URL", help="Delete the documents whose URL begins so.")
    ] = "",
    everything: Annotated[bool, typer.Option("--everything", help="Delete the whole corpus.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Wait for the end and write the signed report.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Delete documents and all that was made of them; jobs in flight for them are canceled.

    Examples:

      indexmill delete https://example.com/old --corpus handbooks

      indexmill delete --prefix https://example.com/2019/ --corpus handbooks

      indexmill delete --everything --corpus handbooks --yes --report report.json
    """
    what = _selection(document, prefix, everything=everything)
    with api_client(state, "deleting") as api:
        if dry_run or not document:
            found = api.preview_deletion(corpus, **what)
            if as_json and dry_run:
                print_json(found.model_dump(mode="json"))
                return
            question = f"{found.documents} documents with {found.chunks} chunks"
            if dry_run:
                console().print(f"{question} would be deleted")
                return
            if not yes:
                typer.confirm(f"Delete {question}?", abort=True, err=True)
            what["confirm"] = found.confirm
        job = _deleted(api, corpus, what, report)
    if as_json:
        print_json(job.model_dump(mode="json"))
    else:
        console().print(f"{job.job_id}  {job.user_message}")


def _selection(document: str, prefix: str, *, everything: bool) -> dict[str, Any]:
    if [bool(document), bool(prefix), everything].count(True) != 1:
        raise Failure("Name one document, or --prefix, or --everything.", EXIT_USAGE)
    if prefix:
        return {"filter": {"url_prefix": prefix}}
    if everything:
        return {"everything": True}
    field = "document_id" if _ID.fullmatch(document) else "url" if "://" in document else "name"
    return {field: document}


def _deleted(api: Client, corpus: str | None, what: dict[str, Any], report: Path | None) -> Any:
    """Start the job and return it; with a report, when that is written."""
    job_id = api.delete(corpus, **what).job_id
    if report is not None:
        api.wait([job_id], _LONGEST_S)
        signed = api.deletion_report(job_id)
        report.write_text(signed.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    return api.get(job_id)
