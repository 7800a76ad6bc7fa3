"""`indexmill documents`: what search sees of a corpus, without a question."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

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

    from indexmill.contracts.http_documents import DocumentItem

documents = typer.Typer(
    help="""List the documents of a corpus; read one, its chunks and its text.

Examples:

  indexmill documents list --url-prefix https://example.com/docs/

  indexmill documents content DOCUMENT_ID > page.md
""",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_DEFAULT: Final = "default"
_EXCERPT: Final = 100
_PAGE: Final = 200
_Corpus = Annotated[str, typer.Option("--corpus", help="Name or id of the corpus.")]
_Document = Annotated[str, typer.Argument(metavar="DOCUMENT_ID", help="As `list` and a search show it.")]


@documents.command("list")
def list_documents(
    corpus: _Corpus = _DEFAULT,
    url_prefix: Annotated[
        str | None, typer.Option(metavar="URL", help="Only documents whose URL begins so.")
    ] = None,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only documents of this media type.")
    ] = None,
    stale: Annotated[
        bool | None, typer.Option("--stale/--no-stale", help="Only documents whose page is gone, or not.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Most documents to list, by URL.", min=1)] = 50,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """List the documents of a corpus in the order of their URLs.

    Examples:

      indexmill documents list --corpus harbour

      indexmill documents list --stale --json
    """
    wanted = {"url_prefix": url_prefix, "content_type": content_type, "stale": stale}
    with api_client(state, "listing the documents") as api:
        # One more than is shown tells whether there are more.
        listed = api.all_documents(corpus, **wanted, limit=min(limit + 1, _PAGE))
        found = list(islice(listed, limit + 1))
    shown = found[:limit]
    if as_json:
        print_json([each.model_dump(mode="json") for each in shown])
    elif shown:
        console().print(_table(shown))
    else:
        console().print("no documents")
    if len(found) > limit:
        note(f"there are more; show them with --limit {limit * 5}")


@documents.command("show")
def show(document: _Document, corpus: _Corpus = _DEFAULT, state: StateOption = DEFAULT_STATE) -> None:
    """Print what is known of a document, as JSON.

    Example:

      indexmill documents show DOCUMENT_ID --corpus harbour
    """
    with api_client(state, "reading the document") as api:
        print_json(api.document(corpus, document).model_dump(mode="json"))


@documents.command("chunks")
def chunks(
    document: _Document,
    corpus: _Corpus = _DEFAULT,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """List a document's chunks in order, with where each is in the text.

    Example:

      indexmill documents chunks DOCUMENT_ID --corpus harbour
    """
    from rich.markup import escape

    with api_client(state, "reading the chunks") as api:
        found = list(api.all_chunks(corpus, document))
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    for each in found:
        text = " ".join(each.text.split())
        page = "" if each.page is None else f"  page {each.page}"
        console().print(f"  {each.ordinal}. {each.start}-{each.end}{page}  [dim]{escape(each.context)}[/]")
        console().print(f"     {escape(text if len(text) <= _EXCERPT else text[:_EXCERPT] + '…')}")


@documents.command("content")
def content(document: _Document, corpus: _Corpus = _DEFAULT, state: StateOption = DEFAULT_STATE) -> None:
    """Print the text that a document's chunks were cut from, and nothing else.

    Example:

      indexmill documents content DOCUMENT_ID > page.md
    """
    with api_client(state, "reading the text") as api:
        sys.stdout.write(api.content(corpus, document))


def _table(found: list[DocumentItem]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("document", "chunks", "searchable since", "url", "", box=None)
    for each in found:
        since = "" if each.indexed_at is None else f"{each.indexed_at:%Y-%m-%d %H:%M:%S}"
        mark = "[yellow]stale[/]" if each.stale else ""
        table.add_row(each.document_id, str(each.chunk_count), since, escape(each.url), mark)
    return table
