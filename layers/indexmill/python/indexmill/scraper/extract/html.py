"""HTML to Markdown: find the main part, without navigation, notices and comments, and convert it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import urljoin

from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions
from html_to_markdown._html_to_markdown import convert
from html_to_markdown.api import _to_rust_conversion_options
from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.scraper.extract.markup import TICK, defused, drop_foreign, escape_markup, set_ticks_aside
from indexmill.scraper.extract.metadata import published_at, read_metadata
from indexmill.scraper.extract.tables import PIPE, fill_spans, set_pipes_aside
from indexmill.scraper.extract.text import UNSEEN_AFTER_TICK, clean_text, clean_title
from indexmill.scraper.extract.verbatim import bare_blocks, keep_lines, spell_formulas

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


_DATED: Final = ("publish", "dcterms.", "dc.date", "pubdate", '"date"', "'date'")
"""What a page contains that says when it was published. Most do not, and are not searched for it."""


def _is_dated(html: str) -> bool:
    # The copy of a large page ends here: reading on takes the memory.
    lower = html.lower()
    return any(each in lower for each in _DATED)


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
    published: datetime | None = None


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
    published = published_at(tree) if _is_dated(html) else None
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
    return Page(markdown, title, language, robots, kept, metadata, canonical, published)


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
