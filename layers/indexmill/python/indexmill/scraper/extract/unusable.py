"""Pages with status 200 and without content: logins, "not found" pages, consent walls, shells for scripts.

Only short pages are looked at: ordinary ones cost nothing, and a long page about logins is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import unquote

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexmill.contracts.errors import ErrorCode
from indexmill.scraper.extract import notices
from indexmill.scraper.extract.html import drop, drop_boilerplate, drop_forms, main_part
from indexmill.scraper.extract.markup import defused
from indexmill.scraper.extract.notices import blocked

SHORT: Final = 1_200
"""Characters of Markdown; longer pages are what they are."""
_LITTLE: Final = 300
"""Characters of Markdown; of pages with more, only the title and the headings count."""
_SOME: Final = 600
"""Characters of Markdown; a page with more that begins with "not found" is about it."""
_SHELL: Final = 250
_LOOKED_AT: Final = 2_000
"""Characters of a heading, a form or a notice."""
_PLACES: Final = 20
_OWN: Final = 80
"""Characters of a landmark that has a text of its own."""
_HELPS: Final = (
    "[type=search i], [role=search], input[name=s], input[name=q], a[href='/'], a[href='./'], a[rel~=home]"
)
_FORMS: Final = "form:has([type=email i], [type=search i], [name*=user i], [name*=login i])"
_HEADINGS: Final = re.compile(r"^#.*$", re.MULTILINE)
_LOGIN_URL: Final = re.compile(r"log-?_?in|sign-?_?in|/auth|/sso|session", re.IGNORECASE)
_NOT_FREE: Final = re.compile(r'"isAccessibleForFree"\s*:\s*"?false', re.IGNORECASE)
_MARKS: Final = ("404", "ot-found", "ot_found", "otfound", "otFound", "noarticletext", "noroute")
"""Cheap to look for; a page without them has no such name."""
_MARK: Final = re.compile(
    r"(?:(?:is|has|error|err|page|template|status|http|view|body|layout|route|content|section|main|type)[-_]*)*"
    r"(?:404|not[-_]?found)(?:[-_]*(?:page|error|template|view|wrapper|wrap|container|content|body|main|section))*"
    r"|noarticletext|cms-noroute-index",
    re.IGNORECASE,
)
"""Class or id of a page for missing ones: "error404", "page-not-found"; never "post-404"."""
_WHOLE: Final = frozenset(("html", "body", "main"))
_MARKED: Final = "html, body, main, [class*='404'], [class*=found i], [class*=noarticle i]"
_LONG_NAME: Final = 60
_FEW_WORDS: Final = 20
"""Width of a main part without text."""
_GREETING: Final = 40
"""Characters of a sentence that may precede a request to log in."""
_PASSWORD: Final = "input[type=password i]"
_ACCOUNT: Final = (
    "input:is([autocomplete*=username i], [name*=user i], [name*=login i], [name*=email i], "
    "[name*=account i], "
    "[name=identifier i], [name=loginfmt i], [name=log i], [id*=user i], [id*=login i], [type=email i])"
    ":not([type=hidden i], [type=submit i], [type=checkbox i], [type=search i])"
)
_LABELS: Final = "button, label, legend, a, h2, h3, [role=button]"
_SUBMITS: Final = "input[type=submit i][value], input[type=button i][value], button[value], [aria-label]"
_ASIDE_TAGS: Final = frozenset(("header", "nav", "dialog", "aside", "footer", "template", "noscript", "menu"))
_ASIDE_ROLES: Final = frozenset(
    ("banner", "navigation", "dialog", "alertdialog", "complementary", "contentinfo", "menu", "search")
)
_ASIDE_CLASSES: Final = re.compile(
    r"(?:^|[\s_-])(modal|popup|pop-up|popover|dropdown|offcanvas|off-canvas|drawer|overlay|lightbox|collapse"
    r"|hidden|hide|d-none|visually-hidden|sr-only|sidebar|topbar|top-bar|navbar|header|footer|mfp-hide)"
    r"(?:$|[\s_-])",
    re.IGNORECASE,
)
_UNSEEN_STYLE: Final = re.compile(r"display:\s*none|visibility:\s*hidden", re.IGNORECASE)
_INPUTS: Final = "input:not([type=hidden i])"
_FEW_FIELDS: Final = 4
_STRUCTURED: Final = re.compile(r"`|^(?:\||\d+\. )", re.MULTILINE)
"""Code, tables and steps: notices have none, texts about such pages do."""


@dataclass(frozen=True, slots=True)
class _Prose:
    """The main part of a page without headings, controls and forms of accounts."""

    with_links: int
    """Width in characters."""
    width: int
    """Width of what is no link."""
    helps: bool
    """Whether it has a search or a link to the start page, or speaks of pages and addresses."""


@dataclass(frozen=True)
class _Page:
    """A short page, and what was read from it."""

    html: str
    title: str | None
    markdown: str

    @cached_property
    def tree(self) -> LexborHTMLParser:
        return LexborHTMLParser(defused(self.html))

    @cached_property
    def titles(self) -> list[str]:
        return notices.parts_of(self.title)

    @cached_property
    def heading(self) -> str:
        """The first heading; one of the second level only where it is the only one."""
        nodes = self.tree.css("h1")[:1] or self.tree.css("h2")
        return " ".join(nodes[0].text(separator=" ")[: notices.LINE].split()) if len(nodes) == 1 else ""

    @cached_property
    def headings(self) -> list[str]:
        return list(dict.fromkeys([*self.titles, *([self.heading] if self.heading else [])]))

    @property
    def later_headings(self) -> list[str]:
        """The other ones of the first level, where there is little text."""
        nodes = self.tree.css("h1")[1:_PLACES]
        if nodes and self.prose.width > _SHELL // 2:
            return []
        return [" ".join(each.text(separator=" ")[: notices.LINE].split()) for each in nodes]

    @cached_property
    def prose(self) -> _Prose:
        tree = LexborHTMLParser(defused(self.html))
        part = main_part(tree) or tree.body
        if part is None:
            return _Prose(0, 0, helps=False)
        helps = part.css_first(_HELPS) is not None
        drop_forms(part, _FORMS)
        drop_boilerplate(part, around=part.tag == "body")
        drop(part, "h1, h2, h3, h4, h5, h6, label, legend")
        whole = _width(part.text(separator=" "))
        drop(part, "a")
        text = part.text(separator=" ")
        return _Prose(whole, _width(text), helps=helps or notices.names_page(text))

    @cached_property
    def lines(self) -> str:
        """The Markdown without headings."""
        return _HEADINGS.sub("", self.markdown).strip()


def reason(html: str, title: str | None, markdown: str, accept: Collection[str] = ()) -> ErrorCode | None:
    """Return why the page has nothing to index; None for a page like any other.

    `title` and `markdown` are what was read from `html`; the Markdown may be "". The codes `accept` are no
    reason.
    """
    if len(markdown) > SHORT:
        return None
    page = _Page(html, title, markdown)
    if ErrorCode.LOGIN_REQUIRED not in accept and _is_login(page):
        return ErrorCode.LOGIN_REQUIRED
    if ErrorCode.SOFT_404 not in accept and _is_not_found(page):
        return ErrorCode.SOFT_404
    return blocked(page.tree, html, title, page.headings, markdown)


def _is_login(page: _Page) -> bool:
    """Return whether the page asks for an account where its text would be."""
    said = any(
        notices.LOGIN_HEADING.fullmatch(each) or notices.MUST_LOG_IN.search(each)
        for each in (*page.headings, *page.later_headings)
    )
    if len(page.markdown) > _LITTLE and not said:
        return _is_teaser(page)
    fields = page.tree.css(_PASSWORD)[:_PLACES]
    if not fields and (said or len(page.markdown) <= _SHELL):
        fields = page.tree.css(_ACCOUNT)[:_PLACES]
    landmark = main_part(page.tree) if fields and not said and page.prose.with_links > _FEW_WORDS else None
    for field in fields:
        if landmark is not None and not _is_within(field, landmark):
            continue
        form = _form(field, alone=said or page.prose.with_links <= _FEW_WORDS)
        if form is not None and (said or _asks(form, page)):
            return True
    if len(page.markdown) > _LITTLE:
        return _is_teaser(page)
    return (
        (said and notices.ENTRY.search(_labels(page.tree)) is not None)
        or _begins_so(page)
        or _is_teaser(page)
    )


def _asks(form: LexborNode, page: _Page) -> bool:
    """Return whether a form is for accounts, or asks for little but a password, where there is no text."""
    seen = "\n".join((*page.headings, _labels(form)))
    if notices.PROTECTED.search(f"{seen}\n{form.text()[:_LOOKED_AT]}\n{page.markdown}"):
        return True
    if page.prose.with_links > _most_beside(page):
        return False
    return notices.LOGIN.search(seen) is not None or len(form.css(_INPUTS)) <= _FEW_FIELDS


def _most_beside(page: _Page) -> int:
    """Return how wide the text beside a form may be that is the page's own."""
    first = page.tree.css_first(f"h1, h2, {_PASSWORD}")
    if first is not None and first.tag == "input" and page.heading:
        return _FEW_WORDS
    if _begins_so(page):
        return _SHELL
    return _OWN if notices.ACCOUNT.search(page.lines) else _OWN * 3 // 4


def _begins_so(page: _Page) -> bool:
    """Return whether a short text, or the first half of one, is a request to log in, with a link to do so."""
    first = notices.first_sentence(page.lines)
    if len(first) <= _GREETING and notices.MUST_LOG_IN.search(first) is None:
        first = notices.first_sentence(page.lines[len(first) :])
    if notices.MUST_LOG_IN.search(first) is None or page.prose.width > max(_OWN, len(first) * 2):
        return False
    links = page.tree.css("a[href], button")[:_PLACES]
    return any(
        notices.LOGIN.search(f"{each.text()[:_LOOKED_AT]}\n{unquote(href)}") or _LOGIN_URL.search(href)
        for each in links
        for href in [(each.attributes.get("href") or "")[:_LOOKED_AT]]
    )


def _is_teaser(page: _Page) -> bool:
    """Return whether the page says by its structured data that its text costs, and leads to an account."""
    if len(page.markdown) > _SOME or "isAccessibleForFree" not in page.html:
        return False
    return _NOT_FREE.search(page.html) is not None and notices.ENTRY.search(_labels(page.tree)) is not None


def _form(field: LexborNode, *, alone: bool) -> LexborNode | None:
    """Return the form of a field, or what holds it; None when it is not seen or beside the text."""
    if field.parent is None or _is_aside(field.parent, alone=alone):
        return None
    above: LexborNode | None = field.parent
    while above is not None and above.tag != "form":
        above = above.parent
    return above or field.parent


def _is_within(node: LexborNode | None, part: LexborNode) -> bool:
    while node is not None and node.mem_id != part.mem_id:
        node = node.parent
    return node is not None


def _is_aside(node: LexborNode, *, alone: bool) -> bool:
    """Return whether an element is not seen, or in header, navigation, dialog and the like.

    `alone`: the page has no other text, or calls itself a log-in, so that names of classes say nothing.
    """
    above: LexborNode | None = node
    while above is not None and above.tag not in ("body", "html", None):
        has = above.attributes
        if (
            above.tag in _ASIDE_TAGS
            or (has.get("role") or "") in _ASIDE_ROLES
            or "hidden" in has
            or has.get("aria-hidden") == "true"
            or _UNSEEN_STYLE.search(has.get("style") or "")
            or (not alone and _ASIDE_CLASSES.search(has.get("class") or ""))
        ):
            return True
        above = above.parent
    return False


def _labels(form: LexborNode | LexborHTMLParser) -> str:
    texts = [each.text(separator=" ")[:_LOOKED_AT] for each in form.css(_LABELS)[:_PLACES]]
    for each in form.css(_SUBMITS)[:_PLACES]:
        texts += [each.attributes.get("value") or "", each.attributes.get("aria-label") or ""]
    return "\n".join(texts)


def _is_not_found(page: _Page) -> bool:
    """Return whether title, heading, first sentence or markup say no more than that there is no such page."""
    by_title = next((each for each in page.titles if notices.says_missing(each)), "")
    by_heading = notices.says_missing(page.heading)
    by_sentence = notices.says_missing(notices.first_sentence(page.lines), of_pages=True)
    by_markup = _is_marked(page)
    if by_markup or bool(by_title) + by_heading + by_sentence > 1:
        most = _LITTLE
    elif by_title or by_heading:
        most = 0 if len(page.markdown) > _LITTLE or _is_about(page, by_title) else _LITTLE
    else:
        most = _SHELL if by_sentence and page.heading not in page.titles else 0
    if not most or by_markup:
        return most > 0 and page.prose.width <= most
    if _STRUCTURED.search(page.markdown) is not None or page.prose.width > most:
        return False
    return page.prose.helps or page.prose.width <= _OWN * 3 // 2


def _is_about(page: _Page, missing: str) -> bool:
    """Return whether a title or heading has the notice and more: the subject of the page.

    `missing` is that part of the title, "" where the notice is the heading.
    """
    if missing:
        return missing.lower() in page.heading.lower()
    return any(page.heading.lower() in each.lower() for each in page.titles)


def _is_marked(page: _Page) -> bool:
    """Return whether the markup names the page, or the part with its heading, as one for missing pages."""
    if not any(mark in page.html for mark in _MARKS):
        return False
    heading = "h1" if page.tree.css_first("h1") is not None else "h2"
    for node in page.tree.css(_MARKED)[:_PLACES]:
        names = (node.attributes.get("class") or "").split()
        if node.tag in _WHOLE:
            names.append(node.attributes.get("id") or "")
        elif _is_aside(node, alone=False) or (
            node.css_first(heading) is None and "noarticletext" not in names
        ):
            continue
        if any(_MARK.fullmatch(name[:_LONG_NAME]) for name in names) and "no-results" not in names:
            return True
    return False


def _width(text: str) -> int:
    """Return the number of characters of a text; one of Chinese, Japanese or Korean is as long as two."""
    text = " ".join(text.split())
    return len(text) + sum(char >= "\u2e80" for char in text)
