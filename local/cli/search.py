"""`indexmill search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from local.cli.crawls import pairs
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


FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="NAME=VALUE",
        help="Only documents that match: url_prefix, language, content_type; published_at, fetched_at, "
        "indexed_at and metadata_dates.NAME, each with .since or .before behind it. May be repeated.",
    ),
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Only documents with this metadata; may be repeated."),
]
NeighboursOption = Annotated[
    int, typer.Option(help="Chunks to show before and after each result.", min=0, max=3)
]
SimilarityOption = Annotated[
    float | None, typer.Option(help="Least cosine similarity of what meaning finds.", min=-1, max=1)
]
Bm25Option = Annotated[float | None, typer.Option(help="Least BM25 score of what keywords find.", min=0)]


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
    min_similarity: SimilarityOption = None,
    min_bm25: Bm25Option = None,
    one_per_document: Annotated[
        bool, typer.Option("--one-per-document", help="Only the best chunk of each document.")
    ] = False,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="In the reranker's order, if the stack has one.")
    ] = True,
    conditions: FilterOption = None,
    metadata: MetadataOption = None,
    neighbours: NeighboursOption = 0,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Search the index.

    Examples:

      indexmill search "how to repair a broken spine"

      indexmill search "opening hours" --corpus harbour --corpus library --top-k 3

      indexmill search "E-1042" --mode keyword --explain

      indexmill search "low tide" --metadata team=quay --filter published_at.since=2026-01-01
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
            filter=search_filter(conditions or [], pairs("--metadata", metadata)),
            highlights=True,
            neighbours=neighbours,
        )
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_results(console(), found, offset)


def search_filter(conditions: Sequence[str], metadata: Mapping[str, str] | None) -> dict[str, object] | None:
    """Return the filter of the command line, None for none; the service knows its names."""
    found: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    for name, value in (pairs("--filter", conditions) or {}).items():
        outer, _, inner = name.partition(".")
        own, _, bound = inner.rpartition(".")
        if not inner:
            found[outer] = value
        elif own:
            found.setdefault(outer, {}).setdefault(own, {})[bound] = value
        else:
            found.setdefault(outer, {})[bound] = value
    return found or None
