"""Idiom counter: how often docstrings, comments, Markdown and names use an idiom of tools/idioms.txt.

Names are those of functions and classes, tests included, split into words. `python -m tools.prose` prints a
row per area; `--places` lists each idiom and each docstring that begins with a wh-clause, `--area layers`
limits both to one area. tests/contract/test_prose.py has the ceilings.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IDIOMS = Path(__file__).with_name("idioms.txt")
AREAS = (
    "layers",
    "clients",
    "functions",
    "sql",
    "local",
    "stack",
    "tools",
    "tests",
    "docs",
    "examples",
    "root",
)
# Text of the invented web site that the local cloud serves: content of documents, not prose about code.
_CONTENT = ("local/site/pages", "local/site/sources")
# A migration's digest is recorded where it was applied, so its comments cannot change.
_MIGRATION = re.compile(r"sql/\d{4}_\w+\.sql")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_WH_CLAUSE = re.compile(r"\s*(?:what|who|whom|whose|which|when|where|why|how|whether)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Idiom:
    """A pattern that prose does not contain, and what to write instead."""

    pattern: str
    instead: str


@dataclass(frozen=True)
class Passage:
    """One docstring, one block of comment lines, or one Markdown paragraph."""

    line: int
    """1-based line of its first character."""
    text: str


@dataclass(frozen=True)
class Place:
    """An idiom found in a file."""

    path: str
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: {self.instead}"


@dataclass
class Count:
    """The figures of one area."""

    words: int = 0
    places: list[Place] = field(default_factory=list)
    wh_clauses: list[str] = field(default_factory=list)
    """Places of docstrings that begin with a wh-clause instead of a name or a verb. Attributes may."""

    @property
    def per_thousand(self) -> float:
        """Return idioms per 1,000 words; 0 for an area without words."""
        return 1000 * len(self.places) / self.words if self.words else 0.0


class Idioms:
    """The committed list, searched for in one pass."""

    def __init__(self, idioms: list[Idiom]) -> None:
        self.idioms = idioms
        # A space also matches a line break. Lower case on both sides is 5 times as fast as IGNORECASE.
        patterns = [each.pattern.lower().replace(" ", r"\s+") for each in idioms]
        self._any = re.compile(rf"\b(?:{'|'.join(patterns)})(?!\w)")
        self._each = [re.compile(pattern) for pattern in patterns]

    @classmethod
    def read(cls, path: Path = IDIOMS) -> Idioms:
        """Return the list in `path`. Raises ValueError for a line without a replacement."""
        lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
        rows = [line.split(" => ") for line in lines if line and not line.startswith("#")]
        if bad := [row for row in rows if len(row) != 2 or not all(row)]:
            raise ValueError(f"{path}: no 'pattern => replacement': {bad}")
        return cls([Idiom(pattern, instead) for pattern, instead in rows])

    def find(self, passage: Passage) -> Iterator[tuple[int, str, str]]:
        """Yield line, words and replacement of each idiom in `passage`; code in backticks is skipped."""
        text = _without_code(passage.text).lower()
        for match in self._any.finditer(text):
            number = next(n for n, pattern in enumerate(self._each) if pattern.fullmatch(match[0]))
            line = passage.line + text.count("\n", 0, match.start())
            yield line, " ".join(match[0].split()), self.idioms[number].instead


def python_passages(source: str) -> Iterator[Passage]:
    """Yield the docstrings (also those of attributes) and comment blocks of a module."""
    yield from _docstrings(ast.parse(source))
    if "#" in source:
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        yield from _blocks([(t.start[0], t.string.lstrip("#")) for t in tokens if t.type == tokenize.COMMENT])


def _docstrings(node: ast.AST) -> Iterator[Passage]:
    """Yield every string that is a statement."""
    for each in _statements(node):
        match each:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Passage(each.lineno, text)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and its statements at all depths; expressions are not visited, for speed."""
    yield node
    for name in ("body", "orelse", "finalbody", "handlers"):
        each = getattr(node, name, None)
        for child in each if isinstance(each, list) else []:
            yield from _statements(child)


def names(tree: ast.Module) -> Iterator[Passage]:
    """Yield the names of a module's functions and classes, each as its words."""
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield Passage(node.lineno, " ".join(_NAME_PART.findall(node.name)))


def wh_clauses(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of a module's, its classes' and functions' docstrings that begin with a wh-clause."""
    for node in _statements(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body[:1]:
            case [ast.Expr(value=ast.Constant(value=str(text)), lineno=line)] if _WH_CLAUSE.match(text):
                yield line


def sql_passages(source: str) -> Iterator[Passage]:
    """Yield the blocks of `--` comments of an SQL file."""
    lines = enumerate(source.splitlines(), 1)
    yield from _blocks([(n, line.split("--", 1)[1]) for n, line in lines if "--" in line])


def markdown_passages(source: str) -> Iterator[Passage]:
    """Yield the text of a Markdown page as one passage, without its fenced code."""
    kept, fenced = [], False
    for line in source.splitlines():
        fence = line.lstrip().startswith("```")
        kept.append("" if fence or fenced else line)
        fenced = fenced != fence
    yield Passage(1, "\n".join(kept))


PASSAGES = {".py": python_passages, ".sql": sql_passages, ".md": markdown_passages}


def count(root: Path = ROOT, idioms: Idioms | None = None) -> dict[str, Count]:
    """Return the figures of each area under `root`."""
    idioms = idioms or Idioms.read()
    counts = {area: Count() for area in AREAS}
    for path in files(root):
        name = path.relative_to(root).as_posix()
        one = counts[name.split("/")[0] if "/" in name else "root"]
        source = path.read_text(encoding="utf-8")
        passages = list(PASSAGES[path.suffix](source))
        for passage in passages:
            one.words += len(_WORD.findall(_without_code(passage.text)))
            one.places += [Place(name, *found) for found in idioms.find(passage)]
        if path.suffix == ".py":
            tree = ast.parse(source)
            one.places += [Place(name, *found) for each in names(tree) for found in idioms.find(each)]
            one.wh_clauses += [f"{name}:{line}" for line in wh_clauses(tree)]
    return counts


def files(root: Path) -> Iterator[Path]:
    """Yield the files with prose under `root`, in order."""
    yield from sorted(root.glob("*.md"))
    for area in AREAS:
        for path in sorted((root / area).rglob("*")):
            name = path.relative_to(root).as_posix()
            hidden = any(
                part.startswith(".") or part in ("__pycache__", "node_modules") for part in Path(name).parts
            )
            if path.suffix in PASSAGES and path.is_file() and not hidden and not _is_fixed(name):
                yield path


def _is_fixed(name: str) -> bool:
    return name.startswith(_CONTENT) or _MIGRATION.fullmatch(name) is not None


def _without_code(text: str) -> str:
    return _CODE.sub(lambda match: "`" + "\n" * match[0].count("\n") + "`", text)


def _blocks(lines: list[tuple[int, str]]) -> Iterator[Passage]:
    block: list[str] = []
    start = 0
    for number, text in lines:
        if block and number != start + len(block):
            yield Passage(start, "\n".join(block))
            block = []
        if not block:
            start = number
        block.append(text)
    if block:
        yield Passage(start, "\n".join(block))


def main() -> None:
    """Print the figures, and with `--places` what they consist of."""
    parser = argparse.ArgumentParser(
        description="Count home-made idioms in docstrings, comments, names and docs."
    )
    parser.add_argument("--places", action="store_true", help="list each idiom with what to write instead")
    parser.add_argument("--area", choices=AREAS, help="only this area")
    options = parser.parse_args()
    counts = {name: one for name, one in count().items() if options.area in (None, name)}
    if options.places:
        for one in counts.values():
            print(*one.places, sep="\n")
            print(*(f"{place}: wh-clause: name the thing" for place in one.wh_clauses), sep="\n")
    print(f"{'area':<10} {'words':>7} {'idioms':>7} {'per 1,000':>10} {'wh-clauses':>11}")
    total = Count()
    for name, one in counts.items():
        print(_row(name, one))
        total = Count(total.words + one.words, total.places + one.places, total.wh_clauses + one.wh_clauses)
    print(_row("all", total))


def _row(name: str, one: Count) -> str:
    figures = f"{one.words:>7,} {len(one.places):>7,} {one.per_thousand:>10.1f} {len(one.wh_clauses):>11}"
    return f"{name:<10} {figures}"


if __name__ == "__main__":
    main()
