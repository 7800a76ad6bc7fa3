"""Chunks and questions made of the files of a folder, with the vectors of the laptop's model."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.ports import Space, Vector
from local.backends.model_files import DIMENSIONS, MODEL_ID
from local.backends.wordllama_model import WordLlamaModel

SPACE: Final = Space(MODEL_ID, DIMENSIONS)
WORDS: Final = 150
"""Of a chunk."""


class Embedder:
    """The laptop's model, in this process."""

    space = SPACE

    def __init__(self, model: WordLlamaModel) -> None:
        """Take a model that is loaded."""
        self.model = model

    def embed(self, texts: Sequence[str], *, timeout_s: float = 0) -> list[Vector]:
        """Return one vector per text."""
        return [row.tolist() for row in self.rows(texts)]

    def rows(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return one row per text."""
        parts = [texts[at : at + 1_000] for at in range(0, len(texts), 1_000)]
        return np.concatenate([self.model.embed(self.model.tokenize(part)) for part in parts])


def chunks_of(folder: Path, count: int) -> list[str]:
    """Return `count` chunks of the files' words; where they are too few, also those half a chunk later."""
    found: list[str] = []
    words: list[str] = []
    for file in sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()):
        if not re.search(r"\.(html?|txt|rst|md)(\.gz)?$", file.name):
            continue
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]+>", " ", raw.decode("utf-8", "replace"))
        words += text.replace("\0", " ").split()
    for start in (0, WORDS // 2, WORDS // 4):
        found += [" ".join(words[at : at + WORDS]) for at in range(start, len(words) - WORDS, WORDS)]
        if len(found) >= count:
            random.Random(5).shuffle(found)
            return found[:count]
    raise SystemExit(f"{folder} has text for {len(found)} chunks, and {count} are asked for")


def questions_of(texts: Sequence[str], count: int) -> list[str]:
    """Return questions of three to ten words that follow one another in a text."""
    draw, found = random.Random(9), []
    while len(found) < count:
        words = draw.choice(texts).split()
        at, length = draw.randrange(len(words) - 10), draw.randint(3, 10)
        question = " ".join(words[at : at + length])[:1_000]
        if count_terms(question):
            found.append(question)
    return found
