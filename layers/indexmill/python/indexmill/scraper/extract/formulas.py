"""Formulas of a web page as text: their TeX source where the page has it, exponents and indices marked.

Pages show a formula as an image or as glyphs, and keep its source beside it, unseen: MediaWiki and KaTeX as
an annotation of MathML, MathJax as a script, others as the text in place of the image.
"""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

_ANY: Final = 'math, sup, sub, img[alt], script[type^="math/tex" i]'
"""A page without formulas has none of these. One selector costs less than searching the text."""
_TEX: Final = 'annotation[encoding="application/x-tex" i]'
_WRAPPERS: Final = frozenset(("mwe-math-element", "katex"))
"""Classes of elements with every form of one formula."""
_IMAGES: Final = (
    "img[alt]:is([class*=math i], [class*=formula i], [class~=latex i], [class~=tex i], "
    '[alt^="$"], [alt^="{\\\\displaystyle"])'
)
_SCRIPTS: Final = 'script[type^="math/tex" i]'
_GLYPHS: Final = (
    ".MathJax, .MathJax_Display, .MathJax_Preview, .MathJax_SVG, .MathJax_SVG_Display, .MathJax_CHTML"
)
"""What MathJax 2 puts beside its scripts."""
_STYLE: Final = re.compile(
    r"\{\\(?:display|text)style\b\s*(.*?)\s*\}|\\(?:display|text)style\b\s*(.*)", re.DOTALL
)
_MOST: Final = 3_000
_SIGNS: Final = {
    "msup": ("^",),
    "msub": ("_",),
    "msubsup": ("_", "^"),
    "mfrac": ("/",),
    "munder": ("_",),
    "mover": ("^",),
    "munderover": ("_", "^"),
}
"""Of MathML: what is written before the second and the third part."""
_ACCENTED: Final = frozenset(("munder", "mover"))
"""Their second part may be a bar or an arrow, which is no exponent."""
_DRAWN: Final = ", ".join((*_SIGNS, "msqrt", "mroot", "mtd", "mtr"))
_GAP: Final = "\ufdd1"
"""In place of a space between an exponent and what follows it; no character."""
_WORD: Final = re.compile(r"\w")
_LONGEST: Final = 2_000
"""Characters of a source; longer ones are no formula."""
_INDEX: Final = 30
"""Characters of an exponent or index; longer ones are small print."""
_BASE: Final = re.compile(r"[\w)\]}|\u2032']")
_STARTS: Final = re.compile(r"[-+\u2212]?[\w(]")
_PLAIN: Final = re.compile(r"[-+\u2212]?\w+[-+\u2212]?|\(.*\)")
_ABBREVIATED: Final = re.compile(
    r"(?:.*[0-9]|.*\b[IVXLC]+)(?:st|nd|rd|th|er|re|\u00e8re|e|\u00e8me|es|o|os|a|as|\u00ba|\u00aa)"
    r"|.*\w(?:TM|SM|lle|lles|mes|os)|.*\b[MD](?:me|r|rs)|.*\bNo",
    re.DOTALL,
)
"""Letters above the line that are no exponent: 21st, XIXe, Mlle."""


def spell_formulas(tree: LexborHTMLParser) -> None:
    """Replace each formula by its source, and mark exponents with ^ and indices with _."""
    if tree.css_first(_ANY) is None:
        return
    for math in tree.css("math")[:_MOST]:
        _spell(math)
    scripts = tree.css(_SCRIPTS)[:_MOST]
    if scripts:
        for glyphs in reversed(tree.css(_GLYPHS)):
            glyphs.decompose()
    for script in scripts:
        _replace(script, script.text())
    for image in tree.css(_IMAGES)[:_MOST]:
        _replace(image, image.attributes.get("alt") or "")
    for node in tree.css("sup, sub")[:_MOST]:
        _mark(node, "^" if node.tag == "sup" else "_")


def _spell(math: LexborNode) -> None:
    """Replace MathML, and what is shown in its place, by its source, or else by its own characters."""
    noted = math.css_first(_TEX)
    source = noted.text() if noted is not None else math.attributes.get("alttext") or ""
    if not source.strip():
        for note in math.css("annotation, annotation-xml"):
            note.decompose()
        for node in reversed(math.css(_DRAWN)[:_MOST]):
            _join(node)
        source = "".join(math.text().split()).replace(_GAP, " ")
    wrapper, above = math, math.parent
    for _ in range(2):
        if above is not None and not _WRAPPERS.isdisjoint((above.attributes.get("class") or "").split()):
            wrapper = above
        above = above.parent if above is not None else None
    _replace(wrapper, source)


def _join(node: LexborNode) -> None:
    """Put into an element of MathML the signs that a browser draws."""
    parts = [each for each in node.iter() if each.tag != "-text"]
    if node.tag == "msqrt":
        _wrap(node, "\u221a")
    elif node.tag == "mtd" and _has_next(node):
        node.insert_after(",")
    elif node.tag == "mtr" and _has_next(node):
        node.insert_after(";")
    elif node.tag == "mroot" and len(parts) == 2:
        index = "".join(parts[1].text().split())
        parts[1].replace_with(f"^(1/{index})")
    for sign, part in zip(_SIGNS.get(node.tag or "", ()), parts[1:], strict=False):
        inside = "".join(part.text().split())
        if node.tag in _ACCENTED and _WORD.search(inside) is None:
            continue
        part.replace_with(f"{sign}{inside}" if _PLAIN.fullmatch(inside) else f"{sign}({inside})")
    if node.tag in ("mfrac", "mroot") and parts:
        _wrap(parts[0])
    after = node.next
    if node.tag in _SIGNS and after is not None and _WORD.match(after.text().lstrip()):
        node.insert_after(_GAP)


def _wrap(node: LexborNode, sign: str = "") -> None:
    """Put a sign before an element, and brackets around it where it is more than one term."""
    inside = "".join(node.text().split())
    if sign or _PLAIN.fullmatch(inside) is None:
        node.replace_with(f"{sign}{inside}" if _PLAIN.fullmatch(inside) else f"{sign}({inside})")


def _has_next(node: LexborNode) -> bool:
    after = node.next
    while after is not None and after.tag == "-text":
        after = after.next
    return after is not None


def _replace(node: LexborNode, source: str) -> None:
    source = " ".join(source.split())
    styled = _STYLE.fullmatch(source)
    source = (styled[1] or styled[2] or "") if styled else source.strip("$ ")
    if source and len(source) <= _LONGEST:
        node.replace_with(source)


def _mark(node: LexborNode, sign: str) -> None:
    """Put a sign before an exponent or index; not before notes, ordinals and the digits of H2O."""
    text, before = node.text().strip(), node.prev
    base = before.text()[-_INDEX:] if before is not None else ""
    if not (base and text and len(text) <= _INDEX and _BASE.fullmatch(base[-1]) and _STARTS.match(text)):
        return
    if sign == "^" and _ABBREVIATED.fullmatch(base + text):
        return
    if sign == "_" and text.isdecimal() and base[-1].isalpha():
        return
    plain = _PLAIN.fullmatch(text) is not None
    node.insert_before(sign if plain else f"{sign}(")
    if not plain:
        node.insert_after(")")
