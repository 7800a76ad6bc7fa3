"""Markup that a renderer of Markdown would make of a text: HTML, links and images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token


class _Trusting(MarkdownIt):
    """A renderer that refuses no scheme of a link."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - its name there
        return bool(url)


_RENDERERS: Final = (
    _Trusting("commonmark", {"html": True}),
    _Trusting("commonmark", {"html": True}).enable(["table", "strikethrough"]),
)
_LIVE: Final = ("html_inline", "html_block", "link_open", "image")


def live_markup(markdown: str) -> list[str]:
    """Return the kind and text of each element that CommonMark, or CommonMark with tables, makes live."""
    return [
        f"{token.type} {token.content[:60]}"
        for renderer in _RENDERERS
        for token in _all(renderer.parse(markdown))
        if token.type in _LIVE
    ]


def _all(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())
