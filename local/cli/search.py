"""`indexmill search`."""

from __future__ import annotations

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


def run(
    text: Annotated[str, typer.Argument(help="Query text.")],
    corpus: Annotated[
        str | None, typer.Option(help="Corpus to search; the default one when not given.")
    ] = None,
    top_k: Annotated[int, typer.Option(help="Number of results.", min=1, max=100)] = 5,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Search the index.

    Examples:

      indexmill search "how to repair a broken spine"

      indexmill search "opening hours" --corpus harbour --top-k 3
    """
    from local.cli.results import print_results

    with api_client(state, "the search") as api:
        found = api.search(text, corpus, top_k)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_results(console(), found)
