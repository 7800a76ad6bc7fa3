"""Chunks of the benchmark's pages that an older commit does not make: what a page that changes embeds again.

    .venv/bin/python -m tests.perf.changed_chunks COMMIT [--cache FOLDER]

The pages are those of tests.perf.extraction. A chunk is equal when its embedded text is. Each commit reads
the pages in a process of its own, with the libraries of this environment. Exit status 1 when more than 5 % of
the chunks are other ones, those of generators apart whose pages were read with text that is not theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from local.backends.model_files import tokenizer_path
from tests.perf.extraction import CACHE, labelled
from tests.support.repository import ROOT

PACKAGE = "layers/indexmill/python"
READ = """
import json, sys
from pathlib import Path
from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer
from indexmill.chunking.worker import split
from indexmill.contracts.content import ChunkSettings
from indexmill.scraper.extract.content import Kind, RawContent, extract
tokenizer = ModelTokenizer(sys.argv[1])
made = {}
for path in sys.stdin.read().split("\\n"):
    page = extract(RawContent(Path(path).read_bytes(), Kind.HTML))
    made[path] = [each.embedded_text for each in split(page.markdown, page.title, ChunkSettings(), tokenizer)]
print(json.dumps(made))
"""
MOST = 0.05
MENDED = ("rust-doc",)
"""Packages whose pages had a generator's hidden lines and buttons in their text: mdbook, rustdoc."""


def main() -> int:
    """Print the share of each page and of all; return 1 when it is above the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("commit", help="the commit that is updated from")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the unpacked packages")
    options = parser.parse_args()
    paths = list(map(str, labelled(options.cache)))
    new = chunks(ROOT / PACKAGE, paths)
    with TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", options.commit, PACKAGE], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        old = chunks(Path(folder) / PACKAGE, paths)
    changed = {path: (Counter(new[path]) - Counter(old[path])).total() for path in paths}
    for path in paths:
        print(f"{changed[path]:>5} of {len(new[path]):>4}  {Path(path).parent.name}/{Path(path).name}")
    others = [path for path in paths if not any(f"/{package}/" in path for package in MENDED)]
    for name, some in (("all pages", paths), ("without pages of mended generators", others)):
        total, other = sum(len(new[path]) for path in some), sum(changed[path] for path in some)
        print(f"changed chunks, {name}: {other} of {total} ({other / total:.1%}) on {len(some)} pages")
    return sum(changed[path] for path in others) > MOST * sum(len(new[path]) for path in others)


def chunks(package: Path, paths: list[str]) -> dict[str, list[str]]:
    """Return the embedded texts of each page's chunks, made by the package in a folder."""
    ran = subprocess.run(
        [sys.executable, "-c", READ, tokenizer_path()],
        input="\n".join(paths),
        env={**os.environ, "PYTHONPATH": str(package)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    made: dict[str, list[str]] = json.loads(ran.stdout)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
