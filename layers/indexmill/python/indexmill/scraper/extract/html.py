"""HTML to Markdown: refuse what costs a parser too much, find the main part, convert. Links, shadow trees.

An HTML5 parser is quadratic twice over. Each start tag may look through all open elements: 200,000 nested
divs took 182 s. And each block reopens all formatting elements that were left open, unless they are alike:
25 kB of `<b c=1><p><b c=2><p>…` became 30 MB of tree. Cheap counts before parsing are upper bounds of both.
"""

from __future__ import annotations

import re
import secrets
from typing import Final, NamedTuple
from urllib.parse import urldefrag, urljoin

from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions
from html_to_markdown._html_to_markdown import convert
from html_to_markdown.api import _to_rust_conversion_options
from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.scraper.extract.escapes import TICK, drop_foreign, escape_markup, set_ticks_aside
from indexmill.scraper.extract.main_part import UNSEEN, drop, drop_boilerplate, flatten, main_part
from indexmill.scraper.extract.metadata import read_metadata
from indexmill.scraper.extract.tables import PIPE, fill_spans, set_pipes_aside
from indexmill.scraper.extract.text import UNSEEN_AFTER_TICK, clean_text, clean_title
from indexmill.scraper.extract.verbatim import bare_blocks, keep_lines, spell_formulas

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


# The one-pass tier gives the same Markdown as the default on 150 documentation pages in half the time, as
# long as links are unwrapped before. Boilerplate is gone when it runs, so its own search for it is off.
# The package's own `convert` makes its native options again for each page, which is a third of its time.
_OPTIONS: Final = _to_rust_conversion_options(
    ConversionOptions(
        tier_strategy="tier1",
        extract_metadata=False,
        skip_images=True,
        preprocessing=PreprocessingOptions(enabled=False),
    )
)
_PANEL: Final = re.compile(
    r"<!--Navigation Panel-->(?:(?!<!--|<(?i:/?div|/?t[adr]|/?body)\b).)*+<!--End of Navigation Panel-->",
    re.DOTALL,
)
"""Menu of LaTeX2HTML, where it is not an element of its own."""
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,3}")


_ROBOTS_VALUES: Final = frozenset(
    {
        "all",
        "none",
        "index",
        "noindex",
        "follow",
        "nofollow",
        "noarchive",
        "nosnippet",
        "noimageindex",
        "notranslate",
    }
)
_MAX_ROBOTS: Final = 20


class Page(NamedTuple):
    """Contents of a page; the Markdown is "" when it has no text."""

    markdown: str
    title: str | None
    language: str | None
    robots: tuple[str, ...]
    html: str | None
    metadata: dict[str, str]
    canonical: str | None = None
    """As the page has it, perhaps relative to its URL."""


def read_html(
    html: str, *, with_html: bool = False, with_metadata: bool = False, whole: bool = False
) -> Page:
    """Return the main part of a page, or the `whole` of what a browser shows.

    Links and emphasis keep their words; link targets and images are left out of the Markdown, since they say
    nothing to a search and cost as many tokens as the text.
    """
    if "<!--Navigation Panel-->" in html:
        html = _PANEL.sub("", html)
    tree = LexborHTMLParser(defused(html))
    root, body = tree.root, tree.body
    if root is None or body is None:
        return Page("", None, None, (), None, {})
    title, language, robots = _title(tree), _language(root), _robots(tree)
    metadata = read_metadata(tree) if with_metadata else {}
    spell_formulas(tree)
    keep_lines(tree, len(html))
    canonical = _canonical(tree) if "anonical" in html or "ANONICAL" in html else None
    part = None if whole else main_part(tree)
    markdown, kept = "", None
    if part is not None:
        drop_boilerplate(part, around=False)
        markdown, kept = _markdown(tree, part, with_html=with_html)
    if not markdown:
        if whole:
            drop(body, UNSEEN)
        else:
            drop_boilerplate(body, around=True)
        markdown, kept = _markdown(tree, body, with_html=with_html)
    return Page(markdown, title, language, robots, kept, metadata, canonical)


def _markdown(tree: LexborHTMLParser, node: LexborNode, *, with_html: bool) -> tuple[str, str | None]:
    """Return Markdown and, if wanted, HTML of an element."""
    kept = node.html if with_html else None
    flatten(node)
    bare_blocks(node)
    node.unwrap_tags(["a"])
    html = drop_foreign(node, node.html or "")
    changed = "rowspan=" in html
    if changed:
        fill_spans(tree, node)
    if "|" in html and "<t" in html:
        changed = set_pipes_aside(node) or changed
    if set_ticks_aside(node, html) or changed:
        html = node.html or ""
    if "`" in html:
        # A fence, and a sign of code, would be shorter than the backticks then are.
        html = UNSEEN_AFTER_TICK.sub("`", html)
    found = _converted(html)
    # The words without their structure are better than no words, and no sign in them is code.
    text = clean_text(node.text(separator="\n").replace("`", TICK) if found is None else found)
    return escape_markup(text.replace(PIPE, "\\|")), kept


def _converted(html: str) -> str | None:
    """Return Markdown; None for what is deeper than the converter goes, and for what it fails at."""
    try:
        result = convert(html=html, options=_OPTIONS, visitor=None)
    except ConversionError:
        return None
    if result.warnings and any(str(warning.kind) == "depth_limit_exceeded" for warning in result.warnings):
        return None
    return result.content or ""


def _title(tree: LexborHTMLParser) -> str | None:
    for selector in ("head > title", "h1", "body title"):
        node = tree.css_first(selector)
        title = clean_title(node.text()) if node is not None else None
        if title:
            return title
    return None


def _language(root: LexborNode) -> str | None:
    found = (root.attributes.get("lang") or root.attributes.get("xml:lang") or "").strip()
    return found if _LANGUAGE.fullmatch(found) else None


def _canonical(tree: LexborHTMLParser) -> str | None:
    """Return the first canonical URL in a page's head, by its base element where it has one."""
    head = tree.head
    link = head.css_first("link[rel~=canonical i][href]") if head is not None else None
    href = (link.attributes.get("href") or "").strip() if link is not None else ""
    base = head.css_first("base[href]") if head is not None and href else None
    try:
        url = urljoin((base.attributes.get("href") or "").strip(), href) if base is not None else href
    except ValueError:
        return None
    return url if 0 < len(url) <= MAX_URL_LENGTH else None


def _robots(tree: LexborHTMLParser) -> tuple[str, ...]:
    """Return the content of robots meta elements; that of a meta element of one agent after its name."""
    rules = []
    for meta in tree.css("meta[name][content]"):
        name = (meta.attributes.get("name") or "").strip().lower()
        content = (meta.attributes.get("content") or "").lower()
        if name == "robots":
            rules.append(content)
        elif all(value.strip() in _ROBOTS_VALUES for value in content.split(",")):
            rules.append(f"{name}: {content}")
    return tuple(rules[:_MAX_ROBOTS])


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
