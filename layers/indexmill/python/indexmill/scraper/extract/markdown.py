"""Markdown and plain text, which pass through."""

from __future__ import annotations

import re
from typing import Final

from indexmill.scraper.extract.text import clean_text, clean_title

_HEADING: Final = re.compile(r"#{1,6}[ \t]+(.*)")
_FENCES: Final = ("```", "~~~")


def read_markdown(text: str) -> tuple[str, str | None]:
    """Return the text and its first heading, or its first line when it has none."""
    clean = clean_text(text)
    fenced = False
    for line in clean.split("\n"):
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        elif not fenced and (found := _HEADING.match(line)):
            return clean, clean_title(found.group(1).rstrip("# \t"))
    return clean, _first_line(clean)


def read_text(text: str) -> tuple[str, str | None]:
    """Return the text and its first line."""
    clean = clean_text(text)
    return clean, _first_line(clean)


def _first_line(clean: str) -> str | None:
    return clean_title(clean.split("\n", 1)[0])
