"""Benchmark of the chunker beside other libraries: MB of text a second of CPU, at 256 tokens and overlap 32.

    python -m tests.perf.chunkers [--texts FOLDER]

All count with the same tokenizer. The others are installed into an environment of their own, which is deleted
afterwards. Without a folder of Markdown files the texts are made up. Exit status 1 when semchunk or langchain
are as fast with offsets and overlap; chonkie's chunker has no overlap.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer
from indexmill.chunking.worker import split
from indexmill.contracts.content import ChunkSettings
from local.backends.model_files import tokenizer_path
from tests.perf.machine import Watch
from tests.support.edited_texts import handbook
from tools.uv_environment import environment

PEERS = ("chonkie", "semchunk", "langchain-text-splitters", "semantic-text-splitter", "tokenizers")
SLOWER = ("semchunk", "langchain")
ROUNDS = 3
RUN = """
import json, sys, time
from tokenizers import Tokenizer
texts = json.load(sys.stdin)
tokenizer = Tokenizer.from_file(sys.argv[1])
tokenizer.no_truncation()
tokenizer.no_padding()
count = lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)

def chonkie():
    from chonkie import RecursiveChunker
    return RecursiveChunker(tokenizer=tokenizer, chunk_size=256)

def semchunk():
    from semchunk import chunkerify
    chunker = chunkerify(count, 256)
    return lambda text: chunker(text, offsets=True, overlap=32)[0]

def langchain():
    from langchain_text_splitters import RecursiveCharacterTextSplitter
    made = RecursiveCharacterTextSplitter(
        chunk_size=256, chunk_overlap=32, length_function=count, add_start_index=True)
    return lambda text: made.create_documents([text])

def semantic_text_splitter():
    from semantic_text_splitter import TextSplitter
    return TextSplitter.from_huggingface_tokenizer(tokenizer, 256, overlap=32).chunk_indices

for make in (chonkie, semchunk, langchain, semantic_text_splitter):
    chunk = make()
    chunk(texts[0])
    began = time.process_time()
    chunks = sum(len(chunk(text)) for text in texts)
    print(json.dumps([make.__name__, time.process_time() - began, chunks]), flush=True)
"""


def main() -> int:
    """Measure, print, and return 1 when one of SLOWER is as fast."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--texts", type=Path, help="folder of Markdown files")
    options = parser.parse_args()
    machine = Watch()
    texts = read(options.texts) if options.texts else made_up()
    size = sum(len(text.encode()) for text in texts) / 1e6
    found = {"indexmill": own(texts), **others(texts)}
    print(f"{len(texts)} texts, {size:.2f} MB")
    for name, (seconds, chunks) in found.items():
        print(f"{name:24} {size / seconds:7.2f} MB/s  {chunks:6} chunks")
    print("\n".join(machine.lines()))
    return 0 if all(found[name][0] > found["indexmill"][0] for name in SLOWER) else 1


def read(folder: Path) -> list[str]:
    """Return the texts below a folder."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.md"))]


def made_up() -> list[str]:
    """Return documents of paragraphs, prose and code."""
    rng = random.Random(71)
    return [handbook(rng, kind, sections=2) for kind in ("paragraphs", "prose", "code") for _ in range(10)]


def own(texts: list[str]) -> tuple[float, int]:
    """Return CPU seconds and chunks of a new process's chunker: it has no word in its memory yet."""
    times = []
    for _ in range(ROUNDS):
        tokenizer = ModelTokenizer(tokenizer_path())
        tokenizer.load()
        began = time.process_time()
        chunks = sum(len(split(text, None, ChunkSettings(), tokenizer)) for text in texts)
        times.append(time.process_time() - began)
    return min(times), chunks


def others(texts: list[str]) -> dict[str, tuple[float, int]]:
    """Return CPU seconds and chunks of the other libraries."""
    with TemporaryDirectory() as folder:
        uv, python = str(Path(sys.executable).parent / "uv"), str(Path(folder) / "bin" / "python")
        for command in (
            ["venv", "--quiet", folder],
            ["pip", "install", "--quiet", "--python", python, *PEERS],
        ):
            subprocess.run([uv, *command], env=environment(), check=True)
        ran = subprocess.run(
            [python, "-c", RUN, str(tokenizer_path())],
            input=json.dumps(texts),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    lines = map(json.loads, ran.stdout.splitlines())
    return {name: (seconds, chunks) for name, seconds, chunks in lines}


if __name__ == "__main__":
    raise SystemExit(main())
