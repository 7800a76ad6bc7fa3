"""Code and formulas of a web page: code keeps its lines and loses their numbers, formulas become text.

Highlighters show line numbers in a column of a table, in elements within the lines, or give each line an
element of its own without a line break. Code is known by its shape: one cell with numbers beside one
with code, rows that are numbered, blocks within `pre`.

Pages show a formula as an image or as glyphs, and keep its TeX source beside it, unseen: MediaWiki and KaTeX
as an annotation of MathML, MathJax as a script, others as the text in place of the image. Exponents and
indices without a source are marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

_EXTRAS: Final = "pre .boring, a.test-arrow, summary.hideme, .docblock-toggle, .collapse-toggle"
"""Lines that mdBook hides, and the buttons of rustdoc."""
_AROUND: Final = (
    "a.test-arrow, summary.hideme, .docblock-toggle, .collapse-toggle, .lineno, .linenos, .linenodiv, "
    ".lntable, .gutter, .crayon-nums, .fragment, div.line-numbers, [data-line-number]"
)
"""Of extras and numbers that are not within `pre`. One selector costs less than searching the text."""
_NUMBER_SIGNS: Final = ("linenum", "line-number", 'class="ln', "hljs-ln", "rouge")
_LINE_SIGNS: Final = ("display:", "-line", 'class="line', "<div", "<p>", "<ol")
_INNER_SIGNS: Final = re.compile(
    r"<(?=[abcdfhilostu])(?:ad|bl|ca|d[dlt]|de|fi|h[1-6r]|im|li|ol|su|t[abdhr]|ul)"
)
"""Of elements other than those that highlighters put into code."""
_NUMBERS: Final = re.compile(r"[\s\d\u00a0]*")
_NUMBER_ELEMENTS: Final = (
    "pre :is(.lineno, .linenos, .ln, .lnt, .lnlinks, .line-number, .line-numbers, .linenumber, "
    ".react-syntax-highlighter-line-number), .fragment .lineno, div.line-numbers"
)
_TABLES: Final = "table:has(pre, code, .crayon-nums, [data-line-number])"
_FRAGMENT: Final = "div.fragment:has(div.line)"
_BLOCKS: Final = 'div, p, li, [style*="display:block" i], [style*="display: block" i]'
_LINES: Final = ".line, .token-line, [data-line]"
_NUMBERED: Final = "[data-line-number], .lineno, .linenos, .line-number, .hljs-ln-numbers, .blob-num"
_INNER_BLOCKS: Final = (
    "pre :is(address, blockquote, dd, details, dl, dt, figcaption, figure, h1, h2, h3, h4, h5, h6, "
    "li, ol, summary, table, tr, ul)"
)
"""Of code, which the converter gives signs of their own that may end the code's block."""
_INNER_CELLS: Final = "pre :is(td, th, tbody, thead, tfoot, caption)"
_HOLDERS: Final = frozenset(
    (
        *("article", "blockquote", "body", "center", "dd", "details", "div", "dl", "figure", "form", "li"),
        *("main", "ol", "section", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
    )
)
"""Elements in which a block of code begins a line. In others it comes behind their signs or their text."""
_MOST: Final = 20_000
_MOST_TABLES: Final = 400


def keep_lines(tree: LexborHTMLParser, most: int) -> None:
    """Make `pre` elements whose text has its lines, and no blocks, of a page of `most` characters."""
    inside = _inside(tree, most)
    around = tree.css_first(_AROUND) is not None
    if around or "boring" in inside:
        for node in reversed(tree.css(_EXTRAS)):
            node.decompose()
    if around or _has(inside, _NUMBER_SIGNS):
        _drop_numbers(tree)
    if _has(inside, _LINE_SIGNS):
        for block in tree.css("pre"):
            _break_lines(block)
    if _INNER_SIGNS.search(inside) is not None:
        _flatten(tree)


def bare_blocks(part: LexborNode) -> None:
    """Take `pre` elements out of those whose signs or text the converter would put beside their fences."""
    seen: set[int] = set()
    for block in part.css("pre"):
        above = block.parent
        while above is not None and above.mem_id != part.mem_id and above.mem_id not in seen:
            further = above.parent
            if above.tag in _HOLDERS:
                seen.add(above.mem_id)
            else:
                above.unwrap()
            above = further


def _inside(tree: LexborHTMLParser, most: int) -> str:
    """Return the HTML of all `pre` elements, and hardly more than `most` characters of nested ones."""
    found = []
    for block in tree.css("pre"):
        found.append(block.html or "")
        most -= len(found[-1])
        if most < 0:
            break
    return "".join(found)


def _flatten(tree: LexborHTMLParser) -> None:
    """Make lines of the blocks within code."""
    for inner in tree.css("pre :is(hr, img)"):
        inner.replace_with("\n" if inner.tag == "hr" else " ")
    for inner in reversed(tree.css(_INNER_BLOCKS)[:_MOST]):
        before = inner.prev
        if before is not None and not before.text().endswith("\n"):
            inner.insert_before("\n")
        _end(inner)
        _dissolve(inner)
    for inner in reversed(tree.css(_INNER_CELLS)[:_MOST]):
        inner.insert_after(" ")
        _dissolve(inner)


def _drop_numbers(tree: LexborHTMLParser) -> None:
    """Make code of what has line numbers beside its lines."""
    for table in reversed(tree.css(_TABLES)[:_MOST_TABLES]):
        _unpack(tree, table)
    for node in tree.css(_NUMBER_ELEMENTS)[:_MOST]:
        if _NUMBERS.fullmatch(node.text()):
            node.decompose()
    for fragment in outermost(tree.css(_FRAGMENT)[:_MOST_TABLES], ".fragment"):
        lines = outermost(fragment.css("div.line"), "div.line")
        _replace(tree, fragment, "\n".join(line.text().rstrip("\n") for line in lines))


def outermost(nodes: Iterable[LexborNode], selector: str) -> Iterator[LexborNode]:
    """Yield those of `nodes`, which a selector matches, that are within no other one."""
    within: set[int] = set()
    for node in nodes:
        if node.mem_id not in within:
            within.update(each.mem_id for each in node.css(selector))
            yield node


def _has(html: str, signs: tuple[str, ...]) -> bool:
    for sign in signs:  # noqa: SIM110 - half the time of any()
        if sign in html:
            return True
    return False


def _unpack(tree: LexborHTMLParser, table: LexborNode) -> None:
    """Replace a table of code by its code."""
    rows = [[cell for cell in row.iter() if cell.tag in ("td", "th")] for row in table.css("tr")[:_MOST]]
    if len(rows) == 1 and len(rows[0]) == 2:
        numbers, code = rows[0]
        block = code.css_first("pre")
        if len(numbers.text()) < _MOST and _is_numbers(numbers):
            if block is not None:
                table.replace_with(block.text() if _is_within_code(table) else block)
                return
            lines = [each.text() for each in code.css("div") if len(each.css("div")) == 1]
            if 1 < len(lines) == len(numbers.text(separator=" ").split()):
                _replace(tree, table, "\n".join(lines))
    elif len(rows) > 1 and all(len(cells) == 2 and _is_number(cells[0]) for cells in rows):
        _replace(tree, table, "\n".join(cells[1].text().strip("\n") for cells in rows))


def _is_within_code(table: LexborNode) -> bool:
    """Return whether a table is within `pre`, as Rouge's is."""
    above = table.parent
    return above is not None and (
        above.tag == "pre" or (above.parent is not None and above.parent.tag == "pre")
    )


def _is_numbers(cell: LexborNode) -> bool:
    """Return whether a cell has the numbers of lines, from its first one on."""
    found = cell.text(separator=" ").split()
    if not found or not found[0].isdecimal() or len(found[0]) > 9:
        return False
    first = int(found[0])
    return found == [str(first + at) for at in range(len(found))]


def _is_number(cell: LexborNode) -> bool:
    """Return whether a cell has the number of a line, or the place for one."""
    marked = cell.attributes.get("data-line-number") is not None or cell.css_matches(_NUMBERED)
    return (marked or cell.css_first(_NUMBERED) is not None) and _NUMBERS.fullmatch(cell.text()) is not None


def _replace(tree: LexborHTMLParser, node: LexborNode, code: str) -> None:
    block = tree.create_node("pre")
    block.insert_child(code.replace("\u00a0", " "))
    node.replace_with(block)


def _break_lines(block: LexborNode) -> None:
    """Put line breaks where a browser shows them without one in the text."""
    for line in block.css(_BLOCKS)[:_MOST]:
        if line.mem_id != block.mem_id:
            _end(line)
            _dissolve(line)
    lines = block.css(_LINES)[:_MOST]
    if len(lines) > 1 and block.text().count("\n") + len(block.css("br")) < len(lines) - 1:
        for line in lines:
            _end(line)
    block.unwrap_tags(["ol", "ul"])


def _dissolve(node: LexborNode) -> None:
    """Leave only what is in an element."""
    if node.child is None:
        node.decompose()
    else:
        node.unwrap()


def _end(line: LexborNode) -> None:
    """End a line with a line break, if it does not already and another one follows."""
    following = line.next
    if following is None or line.text().endswith("\n"):
        return
    if not (following.tag == "-text" and (following.text(deep=False) or "").startswith("\n")):
        line.insert_after("\n")


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
_MOST_FORMULAS: Final = 3_000
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
    for math in tree.css("math")[:_MOST_FORMULAS]:
        _spell(math)
    scripts = tree.css(_SCRIPTS)[:_MOST_FORMULAS]
    if scripts:
        for glyphs in reversed(tree.css(_GLYPHS)):
            glyphs.decompose()
    for script in scripts:
        _replace_formula(script, script.text())
    for image in tree.css(_IMAGES)[:_MOST_FORMULAS]:
        _replace_formula(image, image.attributes.get("alt") or "")
    for node in tree.css("sup, sub")[:_MOST_FORMULAS]:
        _mark(node, "^" if node.tag == "sup" else "_")


def _spell(math: LexborNode) -> None:
    """Replace MathML, and what is shown in its place, by its source, or else by its own characters."""
    noted = math.css_first(_TEX)
    source = noted.text() if noted is not None else math.attributes.get("alttext") or ""
    if not source.strip():
        for note in math.css("annotation, annotation-xml"):
            note.decompose()
        for node in reversed(math.css(_DRAWN)[:_MOST_FORMULAS]):
            _join(node)
        source = "".join(math.text().split()).replace(_GAP, " ")
    wrapper, above = math, math.parent
    for _ in range(2):
        if above is not None and not _WRAPPERS.isdisjoint((above.attributes.get("class") or "").split()):
            wrapper = above
        above = above.parent if above is not None else None
    _replace_formula(wrapper, source)


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


def _replace_formula(node: LexborNode, source: str) -> None:
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
