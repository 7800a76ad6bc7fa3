"""Main part of a web page: the element that holds it, without navigation, notices, comments and the like.

A page says where it is by a landmark, the target of a skip link, or a usual id. Boilerplate is known by its
element, its role, or a usual class; a usual class of an element with the first heading or most of the text is
that of a wrapper. Ids are believed less: headings of technical texts make ids such as "comments".
"""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

UNSEEN: Final = (
    "script, style, noscript, template, iframe, object, embed, svg, canvas, audio, video, [hidden], "
    '[style]:is([style*="display:none" i], [style*="display: none" i], [style*="visibility:hidden" i])'
)
"""Parts of the markup that a browser does not show."""
_ELEMENTS: Final = (
    "nav, footer, dialog, input, select, button, textarea, "
    "[aria-hidden=true], [role=navigation], [role=banner], [role=contentinfo], [role=dialog], "
    "[role=alertdialog], [role=search], .headerlink, .sr-only, .visually-hidden, .screen-reader-text, "
    ".mw-editsection, "
    "a.mark[href^='#'], a:is(.previous_page, .next_page, .toc_page), "
    "aside:not([class*=callout i], [class*=admonition i], [class*=note i], "
    "[class*=warning i], [class~=tip i])"
)
_PASSWORDS: Final = "form:has(input[type=password i])"
_AROUND: Final = "header:not(:has(h1)), [role=complementary]"
"""Boilerplate of a page, and not of its main part."""
_WITHIN: Final = (
    *("cookie-", "cookie_", "-cookie", "cookieb", "cookieconsent", "consent", "gdpr", "onetrust"),
    *("breadcrumb", "navigation", "navbar", "navbox", "navheader", "navfooter", "nav-links", "navlinks"),
    *("pagination", "pager", "skip-link", "skiplink", "skip-nav", "jump-to", "jump-link", "on-this-page"),
    *("table-of-contents", "toctitle", "sidebar", "widget-area", "top-bar", "topbar", "masthead", "footer"),
    *("site-header", "announcement-bar", "noprint", "no-print", "d-print-none", "hidden-print"),
    *("comments", "comment-", "comment_", "disqus", "sharing", "sharedaddy", "share-", "-share", "social-"),
    *("-social", "related", "recommended", "more-stories", "newsletter", "subscribe", "signup", "sign-up"),
    *("advert", "ad-slot", "adsbygoogle", "sponsored", "promo-", "-promo", "popup", "modal-", "-modal"),
    *("entry-meta", "post-meta", "post_meta", "byline", "author-b", "post-author", "post_author", "catlinks"),
    *("edit-link", "editlink", "feedback", "add-to-cart", "jumpbox", "action-bar", "fancy_toc", "nav-panel"),
)
"""Parts of the classes that boilerplate usually has."""
_WHOLE: Final = ("comment", "toc", "share", "social", "promo", "ads", "ad", "signature", "modal")
"""Such classes that other words contain."""
_MENUS: Final = frozenset(("menu", "nav", "mainmenu", "submenu", "column2"))
"""Such classes, and an id, that count where an element is links: the menu of a restaurant has dishes."""
_IDS: Final = (
    *("header", "footer", "sidebar", "nav", "navigation", "breadcrumbs", "comments", "respond", "related"),
    *("disqus_thread", "toc", "catlinks", "siteNotice", "page-footer", "site-footer"),
    *("column2", "gtoc", "titlearea", "nav-path"),
)
_NAMED: Final = (
    ":is(div, section, ul, ol, p, form, table, aside):is("
    + ", ".join(
        (
            *(f'[class*="{part}" i]' for part in _WITHIN),
            *(f'[class~="{name}" i]' for name in (*_WHOLE, *_MENUS)),
        )
    )
    + "), :is(div, ul, form, table, details):not([class*=sect i]):is("
    + ", ".join((*(f"#{name}" for name in _IDS), "[id*=cookie- i]", "[id*=cookiebot i]", "[id*=onetrust i]"))
    + "), div:is(.header, .node):has(a:is([rel=next], [rel=prev], [rel=up], [rel=contents])), "
    "div.header > div.summary:has(> a[href^='#'])"
)
_MAX_NAMED: Final = 400
_MAX_TABLES: Final = 400
"""Each of these may be looked through to its end; a page with more tables keeps them."""
_SHORT: Final = 200
"""Characters; a shorter text is no page, even if a page has no other."""
_KEPT_WITH: Final = "h1, main, article"
_SKIP_LINKS: Final = 'a[class*=skip i][href^="#"], [class*=skip i] a[href^="#"]'
_MAX_SKIP_LINKS: Final = 5
_USUAL: Final = (
    "#content, #main, #main-content, #maincontent, #page-content, #doc-content, [itemprop=articleBody]"
)
_ID: Final = re.compile(r"[A-Za-z][\w-]{0,100}")
_LAYOUT: Final = "table:is([role=presentation], :has(h1, h2, table))"
_FEW_LINKS: Final = 3
_LINKED: Final = 0.8
"""Share of a menu's characters that are those of links."""
_PROSE: Final = 500
"""Characters beside links of a page that is more than a list of links."""
_CELLS: Final = frozenset(("td", "th"))
_PARTS: Final = frozenset(("tbody", "thead", "tfoot", "tr", "caption", *_CELLS))


def main_part(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the element that holds the main part, None when the page does not say or says it twice."""
    body = tree.body
    if body is None:
        return None
    found = tree.css("main, [role=main]") or tree.css("article")
    if found:
        return _article(found[0]) if len(found) == 1 else None
    for link in tree.css(_SKIP_LINKS)[:_MAX_SKIP_LINKS]:
        name = (link.attributes.get("href") or "")[1:]
        target = body.css_first(f"#{name}") if _ID.fullmatch(name) else None
        if target is not None and _is_most(target, body):
            return target
    usual = body.css(_USUAL)
    return usual[0] if len(usual) == 1 and _is_most(usual[0], body) else None


def drop_boilerplate(part: LexborNode, *, around: bool) -> None:
    """Remove all that is not content; `around` when `part` is the page and not its main part."""
    drop_forms(part, _PASSWORDS)
    drop(part, f"{UNSEEN}, {_ELEMENTS}, {_AROUND}" if around else f"{UNSEEN}, {_ELEMENTS}")
    named = [each for each in part.css(_NAMED)[:_MAX_NAMED] if _is_named(each)]
    if named:
        most = max(_SHORT, len(part.text()) / 2)
        for node in reversed(named):
            own = node.mem_id == part.mem_id
            if not (own or node.css_first(_KEPT_WITH) is not None or len(node.text()) > most):
                node.decompose()


def drop_forms(part: LexborNode, selector: str) -> None:
    """Remove the forms that a selector matches, except one around the whole page."""
    forms = part.css(selector)[:_MAX_NAMED]
    half = len(part.text()) / 2 if forms else 0
    for form in reversed(forms):
        if form.css_first(_KEPT_WITH) is None or len(form.text()) <= half:
            form.decompose()


def drop(part: LexborNode, selector: str) -> None:
    """Remove the elements within `part` that a selector matches."""
    # Backwards: what is within another one goes before it. A part is among its own matches.
    for node in reversed(part.css(selector)):
        if node.mem_id != part.mem_id:
            node.decompose()


def flatten(part: LexborNode) -> None:
    """Take the tables away that are layout."""
    few = 0 < len(part.css("table")) <= _MAX_TABLES
    layout = part.css(_LAYOUT) if few else []
    if layout and _has_prose(part):
        _drop_menus(layout, len(part.text()) // 2)
        layout = part.css(_LAYOUT)
    for table in reversed(layout):
        for row in _below(table):
            row.unwrap()
        table.unwrap()


def _drop_menus(layout: list[LexborNode], most: int) -> None:
    """Remove the cells of layout tables that are menus, and at most so many characters."""
    seen: set[int] = set()
    for table in layout:
        if table.mem_id in seen:
            continue
        seen.update(each.mem_id for each in table.css("table"))
        for cell in table.css("td"):
            if cell.mem_id not in seen and len(cell.text()) <= most and _is_menu(cell):
                seen.update(each.mem_id for each in cell.css("td"))
                cell.decompose()


def _has_prose(part: LexborNode) -> bool:
    """Return whether there is more text beside links than in them."""
    linked = _linked(part)
    return len(part.text()) - linked > max(_PROSE, linked)


def _is_named(node: LexborNode) -> bool:
    """Return whether the name of an element says enough: that of a menu does not."""
    has = node.attributes
    name = (has.get("class") or "").lower()
    if _MENUS.isdisjoint((*name.split(), has.get("id"))) or any(part in name for part in _WITHIN):
        return True
    return _is_menu(node)


def _is_menu(node: LexborNode) -> bool:
    """Return whether an element has links and little else."""
    if len(node.css("a[href]")) < _FEW_LINKS:
        return False
    return _linked(node) >= _LINKED * len("".join(node.text().split()))


def _linked(node: LexborNode) -> int:
    return sum(len("".join(link.text().split())) for link in node.css("a[href]"))


def _article(main: LexborNode) -> LexborNode:
    """Return the only article in `main` if it is its content, else `main`."""
    articles = main.css("article")
    return articles[0] if len(articles) == 1 and _is_most(articles[0], main) else main


def _is_most(part: LexborNode, of: LexborNode) -> bool:
    """Return whether `part` has the first heading, or most of the text where there is none."""
    if part.css_first("h1") is not None:
        return True
    return of.css_first("h1") is None and len(part.text()) * 2 >= len(of.text())


def _below(table: LexborNode) -> list[LexborNode]:
    """Return the rows and cells of a table itself, the inner ones first; a line break follows each cell."""
    found: list[LexborNode] = []
    waiting = [table]
    while waiting:
        for child in waiting.pop().iter():
            if child.tag in _PARTS:
                found.append(child)
                if child.tag in _CELLS:
                    child.insert_after("\n")
                else:
                    waiting.append(child)
    return found[::-1]
