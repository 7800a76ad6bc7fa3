"""Markup of a web page: what would cost a parser too much, shadow trees, links; escapes in its Markdown.

An HTML5 parser is quadratic twice over. Each start tag may look through all open elements: 200,000 nested
divs took 182 s. And each block reopens all formatting elements that were left open, unless they are alike:
25 kB of `<b c=1><p><b c=2><p>…` became 30 MB of tree. Cheap counts before parsing are upper bounds of both.

A page may show `<img onerror=…>` or `[click](javascript:…)` as text. In Markdown both would be live, so their
first characters are escaped where the Markdown is no code. So are backticks of the text in such a page: they
would make code of its text, and text of its code. What is code is decided as Markdown decides it, but for one
line: the converter divides code of several lines, so that a backtick without another one in its line is none.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urldefrag, urljoin

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.scraper.extract.tables import PIPE

_FEW_TAGS: Final = 1_000
_MAX_REOPENED: Final = 500_000

# The letters that the names begin with are compared first: most tags have others.
_FORMATTING: Final = r"<(?=[bcefistuBCEFISTU])((?i:b|big|code|em|font|i|s|small|strike|strong|tt|u))"
_WITH_ATTRIBUTES: Final = re.compile(rf"{_FORMATTING}[\s/]")
_DECORATED: Final = re.compile(
    rf"{_FORMATTING}(?=[\s/])((?:\s+[\w:-]+(?:=(?:\"[^\"<>]*\"|'[^'<>]*'|[\w:.#-]+))?)*\s*>)?"
)


def defused(html: str) -> str:
    """Return `html` with formatting elements that cannot multiply: those with attributes lose them.

    Parsers reopen at most three equal elements, and elements without attributes are equal. A formatting tag
    with unreadable attributes becomes a span. Ordinary pages come back as they are.
    """
    tags = html.count("<")
    if tags <= _FEW_TAGS or tags * len(_WITH_ATTRIBUTES.findall(html)) <= _MAX_REOPENED:
        return html
    return _DECORATED.sub(lambda tag: f"<{tag[1]}>" if tag[2] else "<span", html)


TICK: Final = "\ufdd1"
"""In place of a backtick of the text until it is escaped; no character."""
_CODE: Final = frozenset(("pre", "code", "kbd", "samp", "tt"))
_BLOCKS: Final = frozenset(("blockquote", "dd", "dl", "dt", "figure", "li", "ol", "table", "td", "th", "ul"))
"""Elements that the converter makes no code of, also where they are in an element for code."""
_PREFIX: Final = r"[ \t>*+\d.)-]*+"
"""Before a block within quotes and list items."""
_FENCE: Final = re.compile(rf"({_PREFIX})(`{{3,}})[^`\n]*")
_MARKER: Final = re.compile(r"[^>\s]")
_TILDES: Final = re.compile(rf"^({_PREFIX})~~~", re.MULTILINE)
_INSIDE: Final = rf"[^\n{TICK}]"
_INSIDE_CELL: Final = rf"(?:\\\||[^\n{TICK}|])"
"""A bar ends a cell, and code with it."""
_RULER: Final = re.compile(r"^[ \t>*+\d.)|:-]*-[ \t|:-]*$", re.MULTILINE)
"""Below the head of a table, also of one that is text of the page; the bars within real cells are escaped."""
_DEFINITION: Final = re.compile(rf"^{_PREFIX}(\[)(?:[^\[\]\\]|\\.)*+\]:", re.MULTILINE | re.DOTALL)
"""Of the target of a link, which is no less one where a part of it is code."""


def _token(inside: str) -> re.Pattern[str]:
    code = rf"(?P<code>(?<!`)(?P<run>`+)(?!`){inside}*?(?<!`)(?P=run)(?!`))"
    live = rf"(?P<live><(?=[A-Za-z/!?])|\[|\]|`+|{TICK})"
    return re.compile(rf"(?P<before>(?:(?<!\\)\\++)?)(?:{code}|{live})")


_TOKEN: Final = _token(_INSIDE)
_TOKEN_IN_ROWS: Final = _token(_INSIDE_CELL)


def drop_foreign(part: LexborNode, html: str) -> str:
    """Return the HTML of `part` without characters that this package sets in place of others."""
    if not any(mark in html for mark in (TICK, PIPE)):
        return html
    for node in list(part.traverse(include_text=True)):
        if node.tag == "-text":
            text = node.text(deep=False)
            clean = text.replace(TICK, "").replace(PIPE, "")
            if clean != text:
                node.replace_with(clean)
    return part.html or ""


def set_ticks_aside(part: LexborNode, html: str) -> bool:
    """Mark the backticks in the text of `part` when its HTML may need escapes; return whether it changed."""
    if "`" not in html:
        return False
    named = part.css("[class*='`']")
    for node in named:
        # The name of a language would be read as a part of the fence.
        del node.attrs["class"]
    changed = bool(named)
    if not ("&lt;" in html or "]" in html or "<xmp" in html):
        return changed
    known: dict[int, _Code] = {}
    for node in list(part.traverse(include_text=True)):
        if (
            node.tag == "-text"
            and "`" in (text := node.text(deep=False))
            and not _is_code(node.parent, known)
        ):
            node.replace_with(text.replace("`", TICK))
            changed = True
    return changed


def escape_markup(markdown: str) -> str:
    r"""Return `markdown` with `\` before what would be an HTML tag or begin a link or an image."""
    if not _may_live(markdown):
        return markdown
    done: list[str] = []
    at = 0
    for start, end in _code_blocks(markdown):
        done += _escaped(markdown[at:start]), markdown[start:end]
        at = end
    return "".join((*done, _escaped(markdown[at:]))).replace(TICK, "`")


def escape_text(text: str) -> str:
    """Return a text in which nothing is code as Markdown."""
    return escape_markup(text.replace("`", TICK))


class _Code(NamedTuple):
    """Code around a text: `pre`, and another element for code with no block between."""

    block: bool = False
    inline: bool = False


def _is_code(node: LexborNode | None, known: dict[int, _Code]) -> bool:
    """Return whether the converter makes code of text in an element; `known` is of elements before."""
    path: list[LexborNode] = []
    while node is not None and node.mem_id not in known:
        path.append(node)
        node = node.parent
    found = known[node.mem_id] if node is not None else _Code()
    for each in reversed(path):
        inline = each.tag in _CODE or (found.inline and each.tag not in _BLOCKS)
        known[each.mem_id] = found = _Code(found.block or each.tag == "pre", inline)
    return found.block or found.inline


def _code_blocks(markdown: str) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each fenced block of code, fences included."""
    at = 0
    while (ticks := markdown.find("```", at)) >= 0:
        start, at = markdown.rfind("\n", 0, ticks) + 1, _line_end(markdown, ticks)
        opened = _FENCE.fullmatch(markdown, start, at)
        if opened is not None:
            at = _block_end(markdown, at, opened[2], _MARKER.sub(" ", opened[1]))
            yield start, at


def _block_end(markdown: str, at: int, fence: str, indent: str) -> int:
    """Return where a block ends whose first fence ends `at`, behind its last line."""
    while at < len(markdown):
        end = _line_end(markdown, at + 1)
        line = markdown[at + 1 : end]
        if not (line.startswith(indent) or line == indent.rstrip()):
            # A block ends with the quotes or the list item that it is in.
            return at
        at = end
        if fence in line and not line[len(indent) :].strip().strip("`"):
            return at
    return at


def _line_end(markdown: str, at: int) -> int:
    end = markdown.find("\n", at)
    return end if end >= 0 else len(markdown)


def _escaped(text: str) -> str:
    """Escape what is no block of code paragraph by paragraph: no link goes over an empty line."""
    if not _may_live(text):
        return text
    if "~~~" in text:
        text = _TILDES.sub(r"\1\\~~~", text)
    return "\n\n".join([_paragraph(each) if _may_live(each) else each for each in text.split("\n\n")])


def _paragraph(text: str) -> str:
    done: list[str] = []
    at = 0
    for start, before in sorted(_places(text).items()):
        # Backslashes before it are pairs; an odd one of the text is doubled, so that it does not escape ours.
        done += text[at:start], "\\" * (before + 1 if before % 2 else 1)
        at = start
    return "".join(done) + text[at:]


def _places(text: str) -> dict[int, int]:
    """Return where something is escaped, with the number of the text's backslashes before it."""
    places = {found.start(1): 0 for found in _DEFINITION.finditer(text)} if "]:" in text else {}
    opened: list[tuple[int, int]] = []
    token = _TOKEN_IN_ROWS if "|" in text and _RULER.search(text) is not None else _TOKEN
    for found in token.finditer(text):
        start, before = found.end("before"), len(found["before"])
        match found["live"]:
            case None:
                if before % 2:
                    places[start] = 0
            case "<":
                places[start] = before
            case "[":
                opened.append((start, before))
            case "]":
                if before % 2:
                    continue
                if text.startswith("(", start + 1):
                    places.update(opened)
                    opened.clear()
                elif opened:
                    opened.pop()
            case ticks:
                places[start] = before
                places.update(dict.fromkeys(range(start + 1, start + len(ticks)), 0))
    return places


def _may_live(text: str) -> bool:
    return "<" in text or "](" in text or "]:" in text or TICK in text


_SHADOW: Final = "template:is([shadowrootmode=open i], [shadowrootmode=closed i])"
_TEMPLATE: Final = re.compile(r"<template(?:\"[^\"]*\"|[^\">])*+>(.*)</template>", re.DOTALL)
_DEEPEST: Final = 8
"""Shadow trees within shadow trees; deeper ones are left out."""
_MOST: Final = 2_000
"""Pieces of a page, and children of a host."""
_SCRIPTS: Final = re.compile(r"java ?script|\bscripts?\b", re.IGNORECASE)
_ENOUGH: Final = 200
"""Characters of noscript elements, but for lines about scripts, that are a page's text."""


def with_shadows(html: str) -> str:
    """Return a page with its declarative shadow trees in the place of their hosts' content.

    Children of the host are in the slots of its tree; those that have none are not shown.
    """
    if "shadowrootmode" not in html and "SHADOWROOTMODE" not in html:
        return html
    tree = LexborHTMLParser(defused(html))
    shadows = _Shadows()
    shadows.compose(tree, _DEEPEST)
    return shadows.written(tree.html or "")


class _Shadows:
    """Pieces of HTML, each in the place of a mark in the page."""

    def __init__(self) -> None:
        # A page must not be able to name a piece, or it would have its text many times.
        self._mark = f"\ufdd2{secrets.token_hex(8)}-"
        self._pieces: list[str] = []

    def compose(self, tree: LexborHTMLParser, depth: int) -> None:
        """Put a mark in the place of the content of each host in a tree."""
        hosts: dict[int, tuple[LexborNode, LexborNode]] = {}
        for template in tree.css(_SHADOW)[:_MOST]:
            if (host := template.parent) is not None:
                # The first one of a host is its tree.
                hosts.setdefault(host.mem_id, (template, host))
        # Backwards, since a host may be a child of another one.
        for template, host in reversed(hosts.values()):
            if len(self._pieces) >= _MOST:
                return
            inside = _TEMPLATE.fullmatch(template.html or "")
            inner = LexborHTMLParser(inside[1] if inside is not None else "")
            template.decompose()
            if depth > 0 and inner.body is not None:
                self.compose(inner, depth - 1)
                self._fill(inner, host)
                for child in list(host.iter(include_text=True)):
                    child.decompose()
                host.insert_child(self._keep(inner.body.inner_html or ""))

    def written(self, html: str) -> str:
        """Return HTML with the pieces in place of their marks."""
        # Each mark is in the page, or in the piece of a tree that was composed later.
        for at in range(len(self._pieces) - 1, -1, -1):
            html = html.replace(f"{self._mark}{at};", self._pieces[at], 1)
        return html

    def _fill(self, shadow: LexborHTMLParser, host: LexborNode) -> None:
        """Move the children of a host to the slots of their names; a slot without any keeps its own."""
        children: dict[str, list[str]] = {}
        for child in list(host.iter(include_text=True))[:_MOST]:
            name = child.attributes.get("slot") or "" if child.tag != "-text" else ""
            children.setdefault(name, []).append(child.html or "")
        for slot in shadow.css("slot"):
            given = "".join(children.pop(slot.attributes.get("name") or "", ()))
            if given.strip():
                slot.replace_with(self._keep(given))

    def _keep(self, piece: str) -> str:
        self._pieces.append(piece)
        return f"{self._mark}{len(self._pieces) - 1};"


def without_scripts(html: str) -> str | None:
    """Return a page with the content of its noscript elements; None where that is no text of a page."""
    tree = LexborHTMLParser(defused(html))
    nodes = tree.css("body noscript")
    lines = [line.strip() for node in nodes for line in node.text(separator="\n").split("\n")]
    if sum(len(line) for line in lines if not _SCRIPTS.search(line)) < _ENOUGH:
        return None
    for node in reversed(nodes):
        node.unwrap()
    return tree.html


MOST: Final = 1_000
"""Links of one page that are looked at: its first ones."""
_LOOKED_AT: Final = 5 * MOST
_NOFOLLOW: Final = 'meta[content*="nofollow" i], meta[name="robots" i][content*="none" i]'
_LEFT_ALONE: Final = frozenset({"nofollow", "ugc", "sponsored"})
_OTHER_SCHEME: Final = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links_of(html: str, *, cautious: bool = False) -> tuple[str, ...]:
    """Return the URLs, without fragments, that a page links to and lets be followed.

    They are relative to its URL, or to its base element where it has one. The rules of its robots meta
    elements are the caller's; `cautious`: a nofollow for any agent counts.
    """
    tree = LexborHTMLParser(defused(html))
    if cautious and tree.css_first(_NOFOLLOW) is not None:
        return ()
    base_node = tree.css_first("base[href]")
    base = (base_node.attributes.get("href") or "").strip() if base_node is not None else ""
    found: dict[str, None] = {}
    for node in tree.css("a[href], area[href]")[:_LOOKED_AT]:
        if not _LEFT_ALONE.isdisjoint((node.attributes.get("rel") or "").lower().split()):
            continue
        link = _link(base, (node.attributes.get("href") or "").strip())
        if link:
            found[link] = None
            if len(found) == MOST:
                break
    return tuple(found)


def _link(base: str, href: str) -> str:
    """Return a link without its fragment; "" for one that leads to no other page."""
    if not href or href.startswith("#") or len(href) > MAX_URL_LENGTH or _OTHER_SCHEME.match(href):
        return ""
    try:
        return urldefrag(urljoin(base, href)).url
    except ValueError:
        return ""
