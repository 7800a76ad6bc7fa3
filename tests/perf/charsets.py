"""Text without a declared charset: equal texts of this Scraper, chardet and charset-normalizer as they are.

    .venv/bin/python -m tests.perf.charsets

Texts of tests/support/charset_texts. Size is that of the installed package, cold start the import and the
first detection in a fresh process. Exit status 1 when the Scraper reads fewer texts than one of the others.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import chardet
from charset_normalizer import from_bytes

from indexmill.scraper.extract.text import decode
from tests.perf.machine import Watch
from tests.support.charset_texts import CharsetText, held_out_texts, tuning_texts

RUNS = 5
FIRST = {
    "scraper": ("chardet", "from indexmill.scraper.extract.text import decode; decode(BODY, None)"),
    "chardet": ("chardet", "import chardet; chardet.detect(BODY)"),
    "charset-normalizer": ("charset_normalizer", "import charset_normalizer as c; c.from_bytes(BODY).best()"),
}
"""Package, and what a process does at first."""
SETUP = "BODY = bytes(range(0xe0, 0x100)) * 8; import time; at = time.process_time(); "


def by_scraper(body: bytes) -> str:
    """Return the text as the Scraper decodes it."""
    return decode(body, None)


def by_chardet(body: bytes) -> str:
    """Return the text as chardet detects it."""
    return body.decode(chardet.detect(body)["encoding"] or "utf-8", "replace")


def by_charset_normalizer(body: bytes) -> str:
    """Return the text as charset-normalizer detects it."""
    best = from_bytes(body).best()
    return body.decode(best.encoding if best is not None else "utf-8", "replace")


READERS: dict[str, Callable[[bytes], str]] = {
    "scraper": by_scraper,
    "chardet": by_chardet,
    "charset-normalizer": by_charset_normalizer,
}


def main() -> int:
    """Measure and print a table."""
    machine = Watch()
    tuning, held_out = tuning_texts(), held_out_texts()
    texts = [*tuning, *held_out]
    short = [text for text in texts if len(text.text) <= 200]
    print(f"{len(texts)} texts, {len({(text.encoding, text.language) for text in texts})} pairs")
    columns = ("all", "tuning", "held out", "short", "worst pair", "MB", "start ms")
    print(f"{'':<20}" + "".join(f"{column:>11}" for column in columns))
    equal: dict[str, float] = {}
    for name, read in READERS.items():
        shares = [share(read, some) for some in (texts, tuning, held_out, short)]
        equal[name] = shares[0]
        package, first = FIRST[name]
        figures = "".join(f"{each:>11.3f}" for each in shares)
        least = f"{worst(read, texts)} of 8"
        print(f"{name:<20}{figures}{least:>11}{megabytes(package):>11.1f}{start_ms(first):>11.0f}")
    for line in machine.lines():
        print(line)
    return equal["scraper"] < max(equal.values())


def share(read: Callable[[bytes], str], texts: list[CharsetText]) -> float:
    """Return the share of texts whose decoded text is equal."""
    return sum(read(text.encoded) == text.text for text in texts) / len(texts)


def worst(read: Callable[[bytes], str], texts: list[CharsetText]) -> int:
    """Return how many of its eight texts are equal in the worst pair of encoding and language."""
    pairs: dict[tuple[str, str], int] = {}
    for text in texts:
        pair = (text.encoding, text.language)
        pairs[pair] = pairs.get(pair, 0) + (read(text.encoded) == text.text)
    return min(pairs.values())


def megabytes(package: str) -> float:
    """Return the size of an installed package without its bytecode."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    files = (
        each for each in Path(found.origin).parent.rglob("*") if each.suffix != ".pyc" and each.is_file()
    )
    return sum(each.stat().st_size for each in files) / 1e6


def start_ms(first: str) -> float:
    """Return the median milliseconds of CPU that a fresh process takes for its first detection."""
    code = f"{SETUP}{first}; print((time.process_time() - at) * 1000)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(RUNS)
    ]
    return median(float(ran.stdout) for ran in runs)


if __name__ == "__main__":
    raise SystemExit(main())
