"""Extraction by other libraries, in their own environment: `tests.perf.extraction` starts this file.

Reads paths from standard input, a line each; writes one JSON object: extractor, to Markdown by path and
CPU seconds for one round of all pages.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

ROUNDS = 5


def by_trafilatura(html: str) -> str:
    """Return what trafilatura takes for the main text, with its formatting."""
    import trafilatura

    return (
        trafilatura.extract(html, output_format="markdown", include_comments=False, include_formatting=True)
        or ""
    )


def by_html_to_markdown(html: str) -> str:
    """Return the whole page by html-to-markdown, with its own removal of navigation and forms."""
    import html_to_markdown

    preprocessing = html_to_markdown.PreprocessingOptions(
        enabled=True, preset="aggressive", remove_navigation=True, remove_forms=True
    )
    options = html_to_markdown.ConversionOptions(
        extract_metadata=False, skip_images=True, preprocessing=preprocessing
    )
    return html_to_markdown.convert(html, options).content or ""


PEERS: dict[str, Callable[[str], str]] = {
    "trafilatura": by_trafilatura,
    "html-to-markdown": by_html_to_markdown,
}


def main() -> None:
    """Convert all pages by each peer, then measure rounds of it."""
    pages = {}
    for path in sys.stdin.read().split("\n"):
        with open(path, "rb") as file:  # noqa: PTH123
            pages[path] = file.read().decode("utf-8", "replace")
    answer = {}
    for name, read in PEERS.items():
        markdown = {path: read(html) for path, html in pages.items()}
        started = time.process_time()
        for _ in range(ROUNDS):
            for html in pages.values():
                read(html)
        answer[name] = {"markdown": markdown, "cpu_s": (time.process_time() - started) / ROUNDS}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
