"""Text that an HTML parser leaves aside and a browser shows: shadow trees, and noscript without scripts."""

from __future__ import annotations

import re
import secrets
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexmill.scraper.extract.html import defused

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
