"""`indexmill corpora`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    Failure,
    JsonOption,
    StateOption,
    api_client,
    console,
    note,
    print_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.contracts.http_corpora import Corpus, CorpusGrants

_SHOWN: Final = 10

corpora = typer.Typer(
    help="""List, rename, share and verify corpora.

Examples:

  indexmill corpora list

  indexmill corpora rename handbook manuals

  indexmill corpora share handbook 0123456789abcdef

  indexmill corpora verify handbook
""",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a corpus.")]
_Caller = Annotated[str, typer.Argument(metavar="CALLER", help="Id of another caller.")]


@corpora.command("list")
def list_corpora(
    limit: Annotated[int, typer.Option(help="Most corpora to list, by name.", min=1)] = 50,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """List the corpora that the stack's first API key may read, with their figures.

    Example:

      indexmill corpora list --json
    """
    with api_client(state, "listing the corpora") as api:
        found = list(islice(api.corpora(), limit + 1))
    shown = found[:limit]
    if as_json:
        print_json([each.model_dump(mode="json") for each in shown])
        return
    console().print(_table(shown) if shown else "no corpora")
    if len(found) > limit:
        note(f"there are more; show them with --limit {limit * 5}")


@corpora.command("show")
def show(name: _Name, as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """Show the figures of one corpus.

    Example:

      indexmill corpora show handbook
    """
    with api_client(state, "reading the corpus") as api:
        found = api.corpus(name)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        console().print(_table([found]))


@corpora.command("rename")
def rename(
    name: _Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Give a corpus another name; its documents stay, and jobs in flight stay with it.

    Example:

      indexmill corpora rename handbook manuals
    """
    with api_client(state, "renaming the corpus") as api:
        found = api.rename_corpus(name, new_name)
    console().print(f"{found.corpus_id} is {found.corpus_name} now")


@corpora.command("share")
def share(
    name: _Name, caller: _Caller, as_json: JsonOption = False, state: StateOption = DEFAULT_STATE
) -> None:
    """Let another caller search and read a corpus, by the corpus's id.

    A caller finds its own id with `indexmill limits --json`.

    Example:

      indexmill corpora share handbook 0123456789abcdef
    """
    with api_client(state, "sharing the corpus") as api:
        _print(api.share_corpus(name, caller), as_json=as_json)


@corpora.command("unshare")
def unshare(
    name: _Name, caller: _Caller, as_json: JsonOption = False, state: StateOption = DEFAULT_STATE
) -> None:
    """End a grant.

    Example:

      indexmill corpora unshare handbook 0123456789abcdef
    """
    with api_client(state, "ending the grant") as api:
        _print(api.unshare_corpus(name, caller), as_json=as_json)


@corpora.command("grants")
def grants(name: _Name, as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """List the callers that a corpus is shared with.

    Example:

      indexmill corpora grants handbook
    """
    with api_client(state, "reading the grants") as api:
        _print(api.grants(name), as_json=as_json)


@corpora.command("verify")
def verify(name: _Name, as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """Compare what search has of a corpus with its catalogue, and its figures with their sums.

    The exit code is 1 when something is wrong.

    Example:

      indexmill corpora verify handbook
    """
    with api_client(state, "verifying the corpus") as api:
        reports = list(api.verify_corpus(name))
    last, wrong = reports[-1], [each for report in reports for each in report.wrong]
    if as_json:
        print_json({**last.model_dump(mode="json"), "wrong": [each.model_dump() for each in wrong]})
    else:
        for each in wrong[:_SHOWN]:
            console().print(
                f"{each.document_id}: {each.expected} chunks expected, {each.texts} texts,"
                f" {each.vectors} vectors, {each.superseded} of other versions"
            )
        for figure in last.figures or ():
            console().print(f"{figure.name}: {figure.stored} stored, {figure.found} found")
        verdict = {True: "sound", False: "not sound", None: "changed meanwhile, try again"}[last.sound]
        console().print(f"{last.corpus_name}: {last.documents} documents, {verdict}")
    if last.sound is False:
        raise Failure(f"{last.wrong_documents} documents are wrong, or figures are")


def _print(found: CorpusGrants, *, as_json: bool) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"{found.corpus_name} is {found.corpus_id} for those who may read it:")
    for each in found.grants:
        console().print(f"{each.caller_id}  since {each.granted_at:%Y-%m-%d %H:%M:%S}")
    if not found.grants:
        console().print("no other caller")


def _table(found: list[Corpus]) -> Table:
    from rich.table import Table

    table = Table("corpus", "access", "documents", "chunks", "bytes", "indexed", "id", box=None)
    for each in found:
        indexed = f"{each.indexed_at:%Y-%m-%d %H:%M:%S}" if each.indexed_at else ""
        numbers = ["unknown" if n is None else f"{n:,}" for n in (each.documents, each.chunks, each.bytes)]
        table.add_row(each.corpus_name, each.access, *numbers, indexed, each.corpus_id)
    return table
