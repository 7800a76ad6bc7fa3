"""Pages to measure how well walls are distinguished from ordinary pages, held out of tuning.

The ordinary pages have a login form beside their text, or words and numbers of an error page in it. The walls
have the shape of the product named; all are to be served with status 200. No rule is chosen by looking at
these pages: they only measure. `index.json` is an array of objects with the fields of `Page` except `html`,
which is in `html/NAME.html`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """One page and what is expected of it.

    Args:
        name: the name of its file, without the ending.
        product: the kind of site, or the product that serves such a wall.
        language: BCP 47 tag of the language it is written in.
        html: the document.
        expected: None where it is readable, else the error code: `login_required` or `soft_404`.
        phrase: words of the main text that are in the Markdown of a readable page; None for a wall.
    """

    name: str
    product: str
    language: str
    html: str
    expected: str | None
    phrase: str | None


def held_out_pages() -> list[Page]:
    """Return all pages, the ordinary ones first."""
    rows = json.loads((_HERE / "index.json").read_text(encoding="utf-8"))
    return [Page(html=(_HERE / "html" / f"{row['name']}.html").read_text("utf-8"), **row) for row in rows]
