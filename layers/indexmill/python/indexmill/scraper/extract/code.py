"""Code of a web page: its lines are kept, and the line numbers beside them go.

Highlighters show line numbers in a column of a table, in elements within the lines, or give each line an
element of its own without a line break. Code is known by its shape: one cell with numbers beside one
with code, rows that are numbered, blocks within `pre`.
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
