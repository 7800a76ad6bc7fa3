"""A web server of pages whose every text block carries the round: no two rounds have a text in common.

`/NAME?round=N` is page NAME of the folder with marks in its text: a word made of N and the page's number, in
place of a word of about its length. There is one in each block (paragraph, heading, list item, table cell)
and one after every `EVERY` further characters, so that each chunk of a long block has its own. The same
address always answers the same bytes. `python -m tests.perf.page_server --pages DIR` prints its port and the
pages with enough text as one line of JSON, and ends when standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from local.site.catalogue import PAGES_DIR

EVERY: Final = 80
"""Characters after which the next mark comes; a chunk has up to 256 tokens, in Chinese as many characters."""
_LONG: Final = 24
"""A longer word is kept, with a mark before it: the script has no spaces, or it is no word."""
_LEAST_WORDS: Final = 40
"""Pages with less text are left out: such a page may rightly have no content."""
_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aeiou"
"""A mark is made of syllables: a tokenizer makes three tokens of one, and five of a number as long."""
_SYLLABLES: Final = len(_CONSONANTS) * len(_VOWELS)
_BLOCKS: Final = frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote body br caption dd details div dl dt fieldset figcaption figure
        footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table tbody td tfoot th
        thead title tr ul""",
    )
)
_UNSEEN: Final = frozenset(("script", "style", "head", "textarea", "template", "svg", "math", "select"))
_TOKEN: Final = re.compile(
    r"<!--.*?-->|<![^>]*>|<(/?)([a-zA-Z][a-zA-Z0-9]*)(?:\"[^\"]*\"|'[^']*'|[^>\"'])*>", re.DOTALL
)
_WORD: Final = re.compile(r"(&#?\w+;)|[^\W\d_]\w*")
"""A word, or as its first group a character reference, which is none."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page in parts: a mark belongs between each two neighbours."""

    parts: tuple[bytes, ...]
    words: int
    """Of its text, without marks."""

    def marked(self, mark: str) -> bytes:
        """Return the page with `mark` at each of its places."""
        return mark.encode().join(self.parts)


def page_of(html: str) -> Page:
    """Return `html` cut at the places of its marks."""
    parts: list[str] = []
    words = marked_to = 0
    due = 0
    for start, end in _texts(html):
        if start < 0:
            due = 0
            continue
        for found in _WORD.finditer(html, start, end):
            if found.group(1):
                continue
            words += 1
            at = found.start()
            long = len(found.group()) > _LONG
            if at < due:
                at = due if long and due < found.end() else end
            while at < found.end():
                parts.append(html[marked_to:at])
                marked_to = at if long else found.end()
                at = due = at + EVERY
    parts.append(html[marked_to:])
    return Page(tuple(part.encode() for part in parts), words)


def mark_of(serial: int) -> str:
    """Return a word of at least two syllables that no other number from 0 on has."""
    left = serial + _SYLLABLES
    word = ""
    while left:
        left, rest = divmod(left, _SYLLABLES)
        word += _CONSONANTS[rest % len(_CONSONANTS)] + _VOWELS[rest // len(_CONSONANTS)]
    return word


def load(folder: Path) -> dict[str, Page]:
    """Return the HTML pages below `folder` with enough text, by their path in it."""
    files = sorted(file for file in folder.rglob("*.htm*") if file.is_file())
    read = {
        file.relative_to(folder).as_posix(): page_of(file.read_bytes().decode("utf-8", "replace"))
        for file in files
    }
    return {name: page for name, page in read.items() if page.words >= _LEAST_WORDS}


def _texts(html: str) -> Iterator[tuple[int, int]]:
    """Yield where visible text starts and ends; (-1, -1) where a block begins or ends."""
    at = 0
    unseen = ""
    for token in _TOKEN.finditer(html):
        closing, name = token.group(1), (token.group(2) or "").lower()
        if not unseen and token.start() > at:
            yield at, token.start()
        at = token.end()
        if unseen:
            # The title is in the head, and the only text of it that is kept.
            unseen = "" if (closing and name == unseen) or (unseen == "head" and name == "body") else unseen
        elif name in _UNSEEN and not closing:
            unseen = name
        if name in _BLOCKS and not unseen:
            yield -1, -1
    if not unseen and at < len(html):
        yield at, len(html)


class PageServer:
    """HTTP application over loaded pages; there is no robots.txt."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._numbers = {name: number for number, name in enumerate(pages)}

    async def answer(self, request: web.Request) -> web.Response:
        """GET /NAME?round=N."""
        name = request.match_info["name"]
        page = self._pages.get(name)
        if page is None:
            return web.Response(status=404, text="there is no such page")
        etag = f'"{request.query.get("round", "0")}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        body = page.marked(self.mark(name, int(request.query.get("round", "0"))))
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers={"ETag": etag})

    def mark(self, name: str, number: int) -> str:
        """Return the mark of page `name` in round `number`."""
        return mark_of(number * len(self._pages) + self._numbers[name])


async def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(description="pages that differ from round to round")
    parser.add_argument("--pages", type=Path, default=PAGES_DIR, metavar="DIR")
    pages = load(parser.parse_args().pages)
    app = web.Application()
    app.router.add_get("/{name:.*}", PageServer(pages).answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"port": runner.addresses[0][1], "pages": list(pages)}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
