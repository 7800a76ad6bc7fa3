"""Tables of a web page, made so that each line of their Markdown has every value under its column."""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

PIPE: Final = "\ufdd0"
"""In place of a vertical bar in a cell until it is escaped in the Markdown; no character."""
_SPANNED: Final = ":is(table, tbody, thead, tfoot):has(> tr > [rowspan])"
_CELLS: Final = frozenset(("td", "th"))
_NUMBER: Final = re.compile(r"\s*\+?([0-9]{1,5})")
_MOST_CELLS: Final = 10_000
"""That are added to one page; more stay as they are."""
_MOST_COLUMNS: Final = 1_000
_REPEATED: Final = 200
"""Characters of a cell that is repeated; a longer one leaves empty cells in its place."""
_MARKUP: Final = 500
"""Characters of the markup of such a cell; of more, its words alone are repeated."""


def fill_spans(tree: LexborHTMLParser, part: LexborNode) -> None:
    """Repeat each cell of `part` that spans rows in all of them."""
    left = _MOST_CELLS
    for section in part.css(_SPANNED):
        left = _fill(tree, [row for row in section.iter() if row.tag == "tr"], left)
        if left <= 0:
            return


def set_pipes_aside(part: LexborNode) -> bool:
    """Replace the sign that divides cells, within cells of `part`, by PIPE; return whether there was one."""
    changed = False
    for cell in part.css("td, th"):
        for node in list(cell.traverse(include_text=True)):
            if node.tag == "-text" and "|" in (text := node.text(deep=False)):
                node.replace_with(text.replace("|", PIPE))
                changed = True
    return changed


def _fill(tree: LexborHTMLParser, rows: list[LexborNode], left: int) -> int:
    """Fill the rows of one section; return how many cells may still be added."""
    above: dict[int, tuple[LexborNode, int, int]] = {}
    for index, row in enumerate(rows):
        own = [cell for cell in row.iter() if cell.tag in _CELLS]
        below: dict[int, tuple[LexborNode, int, int]] = {}
        column = at = 0
        while (at < len(own) or above) and column < _MOST_COLUMNS:
            spanning = above.pop(column, None)
            if spanning is not None or at == len(own):
                cell, more, width = spanning or (tree.create_node("td"), 1, 1)
                again = cell.clone() if spanning else cell
                _insert(row, own[at] if at < len(own) else None, again)
                left -= 1
                if left <= 0:
                    return 0
                if more > 2:
                    below[column] = (cell, more - 1, width)
            else:
                cell, width = own[at], _span(own[at], "colspan")
                at += 1
                more = _span(cell, "rowspan", all_that_follow=len(rows) - index)
                if more > 1:
                    del cell.attrs["rowspan"]
                    below[column] = (_short(tree, cell), more, width)
                for hidden in range(column + 1, column + width) if above else ():
                    if (under := above.pop(hidden, None)) is not None and under[1] > 2:
                        below[hidden] = (under[0], under[1] - 1, under[2])
            column += width
        above = below
    return left


def _insert(row: LexborNode, before: LexborNode | None, cell: LexborNode) -> None:
    if before is not None:
        before.insert_before(cell)
    else:
        row.insert_child(cell)


def _short(tree: LexborHTMLParser, cell: LexborNode) -> LexborNode:
    """Return what is repeated of a cell."""
    text = cell.text(separator=" ")
    if len(text) <= _REPEATED and len(cell.html or "") <= _MARKUP:
        return cell
    short = tree.create_node(cell.tag or "td")
    if (width := cell.attributes.get("colspan")) is not None:
        short.attrs["colspan"] = width
    if len(text) <= _REPEATED:
        short.insert_child(" ".join(text.split()))
    return short


def _span(cell: LexborNode, name: str, *, all_that_follow: int = 1) -> int:
    """Return how many rows or columns a cell has; 0 is all that follow in its section."""
    found = _NUMBER.match(cell.attributes.get(name) or "")
    return min(int(found[1]) or all_that_follow, _MOST_COLUMNS) if found is not None else 1
