"""Benchmark of extraction: quality on labelled pages and CPU, beside other libraries in one run.

    make .venv-extraction/.ready && .venv/bin/python -m tests.perf.extraction [--pages]

The pages of others come from Debian packages (`apt-get download`, unpacked but not installed), ours are in
tests/unit/scraper/pages; the gold is selectors (tests/support/extraction_quality.py). Exit status 1 when a
bound is broken: mean word F1 below 0.95, least below 0.85, headings, code or rows below 0.95, a figure below
that of another library, more than 1.5 times the CPU of the cheapest one, or less than 0.9 of the pages
without content named as such (tests/support/bad_pages.py). No labelled page may be refused. Two books of
other packages are read too: each chapter has text, and all together the characters that were counted once.
Of two pages of each of nine generators (menus_gold.yaml) at most 10 words are not of their content.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, detect, extract
from tests.perf.machine import Watch
from tests.support.bad_pages import BAD, GOOD, document
from tests.support.extraction_quality import (
    PIECES,
    Gold,
    Quality,
    Reference,
    below,
    plain,
    read_gold,
    reference,
    words,
)
from tests.support.repository import ROOT

OURS = ROOT / "tests" / "unit" / "scraper" / "pages"
OTHERS = ROOT / "tests" / "perf" / "extraction_gold.yaml"
PEERS = ROOT / "tests" / "perf" / "extraction_peers.py"
CACHE = ROOT / "build" / "extraction"
RUNS = 3
ROUNDS = 5
MOST_CPU = 1.5
LEAST_NAMED = 0.9
BOOKS = {
    "debian-policy": ("usr/share/doc/debian-policy/policy.epub", 462_404),
    "developers-reference-ja": ("usr/share/developers-reference/ja/developers-reference.epub", 224_389),
}
"""Path of a package's book, and the characters of its Markdown when `mimetype` is its first part."""
MOST_OFF = 0.01
MENUS = ROOT / "tests" / "perf" / "menus_gold.yaml"
MOST_MENU_WORDS = 10
_SIGNS = re.compile(r"(?m)^([ >]*```)\S+$|^[ >]*\d+\. ")
"""Languages of code and numbers of list items, which are no words of a page."""


@dataclass
class Extractor:
    """Figures of one extractor; seconds of CPU for all pages, by run."""

    quality: Quality = field(default_factory=Quality)
    cpu_s: list[float] = field(default_factory=list)


def main() -> int:
    """Measure, print, and return 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the unpacked packages")
    parser.add_argument("--pages", action="store_true", help="print the word F1 of each page")
    options = parser.parse_args()
    machine = Watch()
    pages = labelled(options.cache)
    found = {"indexmill": Extractor()}
    for _ in range(RUNS):
        texts = {"indexmill": {str(path): markdown(path.read_bytes()) for path in pages}}
        found["indexmill"].cpu_s.append(own_cpu(list(pages)))
        for name, answer in peers(list(pages)).items():
            texts[name] = answer["markdown"]
            found.setdefault(name, Extractor()).cpu_s.append(answer["cpu_s"])
    for name, extractor in found.items():
        for path, expected in pages.items():
            extractor.quality.add(str(path), expected, texts[name][str(path)])
    report(found, list(pages), by_page=options.pages)
    named = sum(refusal(document(markup)) == code for code, markup in BAD.values())
    taken = sum(refusal(document(markup)) is None for markup in GOOD.values())
    print(f"pages without content named as such: {named} of {len(BAD)}")
    print(f"pages that only look like one, read: {taken} of {len(GOOD)}")
    books, menus = unread_books(options.cache), pages_with_menus(options.cache)
    for line in machine.lines():
        print(line)
    return (
        bool(broken(found))
        or bool(books)
        or bool(menus)
        or named < LEAST_NAMED * len(BAD)
        or taken < len(GOOD)
    )


def unread_books(cache: Path) -> list[str]:
    """Print the characters of each book's text; return the books that are not read whole."""
    wrong = []
    for package, (path, expected) in BOOKS.items():
        body = (unpacked(package, cache) / path).read_bytes()
        kind = detect(body, "application/epub+zip", path)
        found = extract(RawContent(body, kind))
        chapters = " ".join(found.notes) or "all chapters"
        print(f"book of {package}: {len(found.markdown):,} characters; {chapters}")
        if found.notes or abs(len(found.markdown) - expected) > MOST_OFF * expected:
            wrong.append(package)
    return wrong


def pages_with_menus(cache: Path) -> list[str]:
    """Print the words of each generator's pages that are not of their content; return pages with too many."""
    wrong = []
    for package, (more, pages) in read_gold(MENUS).items():
        beside = {}
        for path, gold in references(unpacked(package, cache) / more["folder"], pages).items():
            found = Counter(words(plain(_SIGNS.sub(r"\1", markdown(path.read_bytes())))))
            beside[path.name] = (found - gold.words).total()
        print(f"words beside the content, {package}: {', '.join(map(str, beside.values()))}")
        wrong += [name for name, count in beside.items() if count > MOST_MENU_WORDS]
    return wrong


def labelled(cache: Path) -> dict[Path, Reference]:
    """Return the reference of each page; fetch the packages that are not there."""
    found: dict[Path, Reference] = {}
    for package, (more, pages) in read_gold(OTHERS).items():
        folder = unpacked(package, cache) / more["folder"]
        found |= references(folder, pages)
    for _, pages in read_gold(OURS / "gold.yaml").values():
        found |= references(OURS, pages)
    return found


def references(folder: Path, pages: list[Gold]) -> dict[Path, Reference]:
    """Return the reference of each page of a folder."""
    return {folder / each.path: reference((folder / each.path).read_bytes(), each) for each in pages}


def unpacked(package: str, cache: Path) -> Path:
    """Return the folder of a Debian package's files; download and unpack it the first time."""
    folder = cache / package
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package], cwd=cache, check=True
        )
        (archive,) = cache.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive.name, f"{package}.part"], cwd=cache, check=True)
        (cache / f"{package}.part").rename(folder)
    return folder


def markdown(body: bytes) -> str:
    """Return what the Scraper makes of a page."""
    return extract(RawContent(body, Kind.HTML)).markdown


def refusal(html: str) -> str | None:
    """Return the error code of a page; None for one that is read."""
    try:
        markdown(html.encode())
    except PermanentError as error:
        return error.code
    return None


def own_cpu(paths: list[Path]) -> float:
    """Return the CPU seconds of the Scraper's extraction for one round of all pages."""
    bodies = [path.read_bytes() for path in paths]
    started = time.process_time()
    for _ in range(ROUNDS):
        for body in bodies:
            markdown(body)
    return (time.process_time() - started) / ROUNDS


def peers(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Return Markdown and CPU of the other libraries, from a process of their environment."""
    python = ROOT / ".venv-extraction" / "bin" / "python"
    if not python.is_file():
        raise SystemExit("first: make .venv-extraction/.ready")
    ran = subprocess.run(
        [python, PEERS], input="\n".join(map(str, paths)), stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, dict[str, Any]] = json.loads(ran.stdout)
    return found


def report(found: dict[str, Extractor], paths: list[Path], *, by_page: bool) -> None:
    """Print a table."""
    print(f"{len(paths)} pages, {sum(path.is_relative_to(OURS) for path in paths)} of them ours")
    print(f"{'':<18}{'mean F1':>9}{'least':>8}{'headings':>10}{'code':>8}{'rows':>8}{'ms/page':>9}")
    for name, each in found.items():
        quality, ms = each.quality, median(each.cpu_s) / len(paths) * 1000
        shares = [quality.share(kind) for kind in PIECES]
        print(
            f"{name:<18}{quality.mean:>9.3f}{quality.least:>8.3f}{shares[0]:>10.3f}{shares[1]:>8.3f}"
            f"{shares[2]:>8.3f}{ms:>9.2f}"
        )
    for path in paths if by_page else ():
        figures = "  ".join(f"{each.quality.f1[str(path)]:.3f}" for each in found.values())
        print(f"  {figures}  {path.parent.name}/{path.name}")
    for line in broken(found):
        print(f"broken: {line}")


def broken(found: dict[str, Extractor]) -> list[str]:
    """Return the bounds that do not hold."""
    own = found["indexmill"]
    lines = below(own.quality)
    for name, each in found.items():
        figures = [("mean F1", own.quality.mean, each.quality.mean)]
        figures += [(kind, own.quality.share(kind), each.quality.share(kind)) for kind in PIECES]
        lines += [
            f"{what} {ours:.3f} of {theirs:.3f} by {name}" for what, ours, theirs in figures if ours < theirs
        ]
    cheapest = min(median(each.cpu_s) for name, each in found.items() if name != "indexmill")
    if median(own.cpu_s) > MOST_CPU * cheapest:
        lines.append(f"CPU is {median(own.cpu_s) / cheapest:.2f} times that of the cheapest")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
