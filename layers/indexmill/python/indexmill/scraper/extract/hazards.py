"""Detection, by cheap counts before parsing, of HTML that costs a parser far more than its size.

An HTML5 parser is quadratic twice over. Each start tag may look through all open elements: 200,000 nested
divs took 182 s. And each block reopens all formatting elements that were left open, unless they are alike:
25 kB of `<b c=1><p><b c=2><p>…` became 30 MB of tree. The counts are upper bounds: no trick lowers them.
"""

from __future__ import annotations

import re
from typing import Final

MAX_TAGS_IN_PROCESS: Final = 8_000
"""More start and end tags than this are parsed where they can be stopped: nesting them costs up to 0.3 s."""
_FEW_TAGS: Final = 1_000
_MAX_REOPENED: Final = 500_000

_FORMATTING: Final = "b|big|code|em|font|i|s|small|strike|strong|tt|u"
_WITH_ATTRIBUTES: Final = re.compile(rf"<(?:{_FORMATTING})[\s/]", re.IGNORECASE)
_PLAIN_ATTRIBUTES: Final = re.compile(
    rf"<({_FORMATTING})(?:\s+[\w:-]+(?:=(?:\"[^\"<>]*\"|'[^'<>]*'|[\w:.#-]+))?)*\s*>", re.IGNORECASE
)
_STILL_WITH_ATTRIBUTES: Final = re.compile(rf"<(?:{_FORMATTING})(?=[\s/])", re.IGNORECASE)


def defused(html: str) -> str:
    """Return `html` with formatting elements that cannot multiply: those with attributes lose them.

    Parsers reopen at most three equal elements, and elements without attributes are equal. A formatting tag
    with unreadable attributes becomes a span. Ordinary pages come back as they are.
    """
    tags = html.count("<")
    if tags <= _FEW_TAGS or tags * len(_WITH_ATTRIBUTES.findall(html)) <= _MAX_REOPENED:
        return html
    return _STILL_WITH_ATTRIBUTES.sub("<span", _PLAIN_ATTRIBUTES.sub(r"<\1>", html))
