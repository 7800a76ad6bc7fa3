"""Quality of extracted Markdown against a page's gold, which is kept as CSS selectors.

The gold names the elements of the main content, and those within it to leave out. Words are compared as a
multiset. A heading is kept when a heading line has its words; a row of a table when one line with cells has
its words in order; code when a fenced block has its lines. A cell that spans rows is a cell of each of them.
Text above or below the line is a word of its own (10<sup>8</sup> is not 108), but for digits below it next to
another character (H<sub>2</sub>O).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from selectolax.lexbor import LexborHTMLParser, LexborNode

PIECES: Final = ("headings", "code", "rows")
_WORD: Final = re.compile(r"[^\W_]+")
_INVISIBLE: Final = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_TARGET: Final = re.compile(r"\]\([^()\s]*(?:\([^()\s]*\))?[^()\s]*(?:\s+\"[^\"]*\")?\)")
"""Of a link or an image in Markdown."""
_ESCAPE: Final = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|<>~])")
_FENCE: Final = re.compile(
    r"^[ \t>]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t>]*\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile(r"^[ \t>]*(?:[-*+] |\d+\. )?#{1,6}[ \t]+(.+)$", re.MULTILINE)
_INLINE: Final = frozenset(
    (
        *(
            "a",
            "abbr",
            "acronym",
            "b",
            "bdi",
            "bdo",
            "big",
            "cite",
            "code",
            "data",
            "del",
            "dfn",
            "em",
            "font",
        ),
        *("i", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "time"),
        *("tt", "u", "var", "wbr"),
    )
)
"""Elements whose text belongs to the word before them."""
_UNSEEN: Final = "script, style, noscript, template, [hidden]"


@dataclass(frozen=True, slots=True)
class Gold:
    """Selectors of one page."""

    path: str
    main: str
    """Each element is part of the main content; none is within another one."""
    remove: str = ""
    headings: str = "h1, h2, h3, h4, h5, h6"
    code: str = "pre"
    rows: str = "tr"


@dataclass(frozen=True, slots=True)
class Reference:
    """Content of a page, by its gold."""

    words: Counter[str]
    headings: tuple[tuple[str, ...], ...] = ()
    code: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class Quality:
    """Figures of one extractor; kept and expected pieces are of all pages together."""

    f1: dict[str, float] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)

    @property
    def mean(self) -> float:
        """Return the mean word F1 of the pages."""
        return sum(self.f1.values()) / len(self.f1)

    @property
    def least(self) -> float:
        """Return the word F1 of the worst page."""
        return min(self.f1.values())

    def share(self, kind: str) -> float:
        """Return how much of the headings, code or rows was kept."""
        return self.kept[kind] / self.expected[kind] if self.expected[kind] else 1.0

    def add(self, page: str, reference: Reference, markdown: str) -> None:
        """Count one page."""
        self.f1[page] = word_f1(reference.words, markdown)
        for kind, (kept, expected) in pieces(reference, markdown).items():
            self.kept[kind] += kept
            self.expected[kind] += expected


def read_gold(path: Path) -> dict[str, tuple[dict[str, str], list[Gold]]]:
    """Return each set of a gold file with its other keys and its pages."""
    found = {}
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        common = entry["gold"]
        pages = [Gold(page, **{**common, **(own or {})}) for page, own in entry["pages"].items()]
        found[name] = {key: value for key, value in entry.items() if key not in ("gold", "pages")}, pages
    return found


def reference(html: bytes, gold: Gold) -> Reference:
    """Return the content that the gold selects. Raises ValueError for a selector that matches nothing."""
    tree = LexborHTMLParser(html)
    parts = tree.css(gold.main)
    if not parts:
        raise ValueError(f"{gold.path}: nothing is {gold.main}")
    for selector in filter(None, (_UNSEEN, gold.remove)):
        # One at a time: what is within a removed element is gone with it.
        while (node := next((each for part in parts for each in part.css(selector)), None)) is not None:
            node.decompose()
    grid = _Grid(parts)
    rows = [grid.words(row) for part in parts for row in part.css(gold.rows)]
    return Reference(
        Counter(word for part in parts for word in words(_spaced(part))) + grid.again,
        tuple(_spelled(node) for part in parts for node in part.css(gold.headings) if _spelled(node)),
        tuple(lines for part in parts for node in part.css(gold.code) if (lines := _lines(_source(node)))),
        tuple(row for row in rows if row),
    )


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.translate(_INVISIBLE).lower())


def below(quality: Quality) -> list[str]:
    """Return the bounds that a quality does not reach."""
    figures = [("mean F1", quality.mean, 0.95), ("least F1", quality.least, 0.85)]
    figures += [(kind, quality.share(kind), 0.95) for kind in PIECES]
    return [f"{what} {figure:.3f} is below {bound}" for what, figure, bound in figures if figure < bound]


def word_f1(expected: Counter[str], markdown: str) -> float:
    """Return the harmonic mean of precision and recall of the words."""
    found = Counter(words(plain(markdown)))
    both = (expected & found).total()
    return 2 * both / (expected.total() + found.total()) if both else 0.0


def pieces(reference: Reference, markdown: str) -> dict[str, tuple[int, int]]:
    """Return the number of kept and of expected headings, code blocks and rows."""
    headings = Counter(tuple(words(plain(line))) for line in _HEADING.findall(markdown))
    lines = [tuple(words(plain(line))) for line in markdown.split("\n") if "|" in line]
    code = [_lines(block) for _, block in _FENCE.findall(markdown)]
    return {
        "headings": ((Counter(reference.headings) & headings).total(), len(reference.headings)),
        "code": ((Counter(reference.code) & Counter(code)).total(), len(reference.code)),
        "rows": (_common(reference.rows, lines), len(reference.rows)),
    }


def plain(markdown: str) -> str:
    """Return Markdown without targets of links and escapes."""
    return _ESCAPE.sub(r"\1", _TARGET.sub("]", markdown))


def _common(rows: Iterable[tuple[str, ...]], lines: Iterable[tuple[str, ...]]) -> int:
    return (Counter(rows) & Counter(lines)).total()


def _spelled(node: LexborNode) -> tuple[str, ...]:
    return tuple(words(_spaced(node)))


class _Grid:
    """Cells of each row of some tables, those from the rows above in their place."""

    def __init__(self, parts: Iterable[LexborNode]) -> None:
        self._rows: dict[int, list[LexborNode]] = {}
        self.again: Counter[str] = Counter()
        """Words of cells in the rows that they span, but for the first one."""
        for part in parts:
            for section in part.css(":is(table, tbody, thead, tfoot):has(> tr > [rowspan])"):
                self._read([row for row in section.iter() if row.tag == "tr"])

    def words(self, row: LexborNode) -> tuple[str, ...]:
        """Return the words of a row in the order of its columns."""
        cells = self._rows.get(row.mem_id) or _cells(row)
        return tuple(word for cell in cells for word in words(_spaced(cell)))

    def _read(self, rows: list[LexborNode]) -> None:
        above: dict[int, tuple[LexborNode, int]] = {}
        for row in rows:
            own, placed, column = _cells(row), [], 0
            below: dict[int, tuple[LexborNode, int]] = {}
            while own or any(at >= column for at in above):
                if column in above:
                    cell, left = above[column]
                    width = _span(cell, "colspan")
                    self.again.update(words(_spaced(cell)))
                elif own:
                    cell = own.pop(0)
                    width, left = _span(cell, "colspan"), _span(cell, "rowspan")
                else:
                    column += 1
                    continue
                placed.append(cell)
                if left > 1:
                    below[column] = (cell, left - 1)
                column += width
            self._rows[row.mem_id], above = placed, below


def _cells(row: LexborNode) -> list[LexborNode]:
    return [each for each in row.iter() if each.tag in ("td", "th")]


def _span(cell: LexborNode, name: str) -> int:
    value = cell.attributes.get(name) or ""
    return int(value) if value.isdecimal() else 1


def _source(block: LexborNode) -> str:
    """Return the text of a code block, each of whose blocks is a line."""
    for line in block.css("[style*='display:block'], [style*='display: block']"):
        if not line.text().endswith("\n"):
            line.insert_after("\n")
    return block.text()


def _lines(text: str) -> str:
    """Return code without its indent, trailing blanks and empty lines."""
    lines = [line.rstrip() for line in text.replace("\u00a0", " ").split("\n")]
    full = [line for line in lines if line]
    indent = min((len(line) - len(line.lstrip()) for line in full), default=0)
    return "\n".join(line[indent:] for line in full)


def _spaced(node: LexborNode) -> str:
    """Return the text of a node with a space at the bounds of its blocks."""
    parts: list[str] = []

    def walk(at: Any) -> None:
        for child in at.iter(include_text=True):
            if child.tag == "-text":
                parts.append(child.text(deep=False) or "")
                continue
            inline = child.tag in _INLINE or _is_index(child, parts)
            parts.append("" if inline else " ")
            walk(child)
            parts.append("" if inline else " ")

    walk(node)
    return "".join(parts)


def _is_index(node: Any, before: list[str]) -> bool:
    """Return whether these are digits below the line, as in a chemical formula."""
    return node.tag == "sub" and "".join(before[-3:])[-1:].isalpha() and node.text().isdecimal()
