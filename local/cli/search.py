"""`indexmill search`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    JsonOption,
    StateOption,
    api_client,
    console,
    print_json,
)


class Mode(StrEnum):
    """Lists that a search consults."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


def run(
    text: Annotated[str, typer.Argument(help="Query text.")],
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Corpus to search, up to ten times; the default one when not given."),
    ] = None,
    top_k: Annotated[int, typer.Option(help="Number of results.", min=1, max=100)] = 5,
    offset: Annotated[int, typer.Option(help="Results to skip.", min=0, max=199)] = 0,
    mode: Annotated[
        Mode, typer.Option(help="By meaning and keywords, by meaning alone, or by keywords alone.")
    ] = Mode.HYBRID,
    min_similarity: Annotated[
        float | None, typer.Option(help="Least cosine similarity of what meaning finds.", min=-1, max=1)
    ] = None,
    min_bm25: Annotated[
        float | None, typer.Option(help="Least BM25 score of what keywords find.", min=0)
    ] = None,
    one_per_document: Annotated[
        bool, typer.Option("--one-per-document", help="Only the best chunk of each document.")
    ] = False,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="In the reranker's order, if the stack has one.")
    ] = True,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Search the index.

    Examples:

      indexmill search "how to repair a broken spine"

      indexmill search "opening hours" --corpus harbour --corpus library --top-k 3

      indexmill search "E-1042" --mode keyword --explain
    """
    from local.cli.results import print_results

    with api_client(state, "the search") as api:
        found = api.search(
            text,
            top_k=top_k,
            offset=offset,
            corpora=corpus or None,
            mode=mode.value,
            min_similarity=min_similarity,
            min_bm25=min_bm25,
            one_per_document=one_per_document,
            rerank=None if rerank else False,
            explain=explain,
        )
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_results(console(), found, offset)
