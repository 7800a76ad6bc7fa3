"""`indexmill search`."""

from __future__ import annotations

from typing import Annotated

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    Failure,
    JsonOption,
    StateOption,
    client,
    console,
    print_json,
    running_stack,
)


def run(
    text: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    corpus: Annotated[
        str | None, typer.Option(help="Corpus to search; the default one when not given.")
    ] = None,
    top_k: Annotated[int, typer.Option(help="How many results.", min=1, max=100)] = 5,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Search what was indexed.

    Examples:

      indexmill search "how do I mend a broken spine"

      indexmill search "opening hours" --corpus harbour --top-k 3
    """
    info = running_stack(state)
    from indexmill.client import ApiError
    from local.cli.results import print_results

    with client(info) as api:
        try:
            found = api.search(text, corpus, top_k)
        except ApiError as error:
            raise Failure(f"the search failed: {error}") from error
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_results(console(), found)
