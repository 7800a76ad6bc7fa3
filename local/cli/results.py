"""Search results as text."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.contracts.http_search import SearchResponse, SearchResult

_EXCERPT: Final = 160


def print_results(screen: Console, found: SearchResponse, offset: int = 0) -> None:
    """Print each result with its rank, score, source and the beginning of its text."""
    from rich.markup import escape

    for rank, hit in enumerate(found.results, offset + 1):
        screen.print(f"  {rank}. [bold]{hit.score:.3f}[/]  {hit.source_url}")
        for text in (each.text for each in hit.preceding or ()):
            screen.print(f"     [dim]… {escape(_shortened(text))}[/]")
        screen.print(f"     [dim]{_marked(hit)}[/]")
        for text in (each.text for each in hit.following or ()):
            screen.print(f"     [dim]{escape(_shortened(text))} …[/]")
        if hit.explain is not None:
            for name, part in (("keyword", hit.explain.keyword), ("vector", hit.explain.vector)):
                said = (
                    "not in its list"
                    if part is None
                    else (
                        f"score {part.score:.3f}, rank {part.rank}, {part.weight:.2f} x {part.normalized:.3f}"
                    )
                )
                screen.print(f"     {name:8} {said}")
            made, age = hit.explain.embedding_version, hit.explain.age_s
            version = f"generation {hit.explain.generation}, {made.model} ({made.dimension})"
            said = f"     of {hit.corpus_name}, {version}"
            screen.print(said if age is None else f"{said}, indexed {timedelta(seconds=age)} ago")
    if found.reranked is False:
        screen.print("  [yellow]not reranked: the reranker failed or took too long[/]")
    if found.degraded is not None:
        screen.print("  [yellow]found by keywords alone: the question could not be embedded[/]")
    if found.other_model:
        text = "documents with vectors of another model are found by keywords alone: replay their jobs"
        screen.print(f"  [yellow]{text}[/]")
    if not found.results:
        screen.print("  nothing found")


def _marked(hit: SearchResult) -> str:
    """Return the beginning of the result's text in one line of markup; words of the query are underlined."""
    from rich.markup import escape

    shown, pieces, at = hit.text, [], 0
    if len(shown) > _EXCERPT:
        shown = shown[: _EXCERPT - 1].rsplit(" ", 1)[0]
    for span in hit.highlights or ():
        if span.end <= len(shown):
            pieces += [escape(shown[at : span.start]), f"[u]{escape(shown[span.start : span.end])}[/u]"]
            at = span.end
    line = " ".join("".join([*pieces, escape(shown[at:])]).split())
    return line if len(shown) == len(hit.text) else f"{line}…"


def _shortened(text: str) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1].rsplit(" ", 1)[0] + "…"
