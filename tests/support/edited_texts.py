"""Made-up documents with long sections, and edits of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TOKENS = 3_000
"""Of a section, about."""
_PER_WORD = 1.6
"""Tokens of a made-up word."""
_COMMON = (
    "the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "at",
    "from", "his", "her", "they", "we", "have", "not", "are", "this", "but", "had", "which", "one",
    "you", "were", "all", "their", "there", "been", "if", "more", "when", "will", "would", "who", "so",
    "no", "out", "up", "into", "than", "them",
)  # fmt: skip
_SYLLABLES = re.findall("..", "bacedifogihakelimonuparesitovawexiyozu")


def handbook(rng: random.Random, kind: str, sections: int) -> str:
    """Return a document of sections without headings of their own, each of about 3,000 tokens."""
    shape = _SHAPES[kind]
    parts = [f"## Part {at}\n\n{shape(rng, _sentences(rng))}" for at in range(sections)]
    return "# Handbook\n\n" + "\n\n".join(parts)


def edited(rng: random.Random, text: str) -> str:
    """Return the text with 40 words more at a random place, which is between two words of a section."""
    at = rng.choice([found.start() for found in re.finditer(r"(?<=[a-z,]) (?=[a-z])", text)])
    return f"{text[:at]} {inserted(rng, 40)}{text[at:]}"


def inserted(rng: random.Random, count: int) -> str:
    """Return so many words."""
    return " ".join(_word(rng) for _ in range(count))


def _word(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(_COMMON)
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(1, 3)))


def _sentences(rng: random.Random) -> list[str]:
    found: list[str] = []
    words = 0
    while words * _PER_WORD < TOKENS:
        size = rng.randint(5, 22)
        found.append(inserted(rng, size).capitalize() + ".")
        words += size
    return found


def _paragraphs(rng: random.Random, sentences: list[str]) -> str:
    parts: list[str] = []
    while sentences:
        size = rng.randint(2, 6)
        parts.append(" ".join(sentences[:size]))
        sentences = sentences[size:]
    return "\n\n".join(parts)


def _code(_rng: random.Random, sentences: list[str]) -> str:
    lines = [f"call_{at}({sentence[:50].lower()})" for at, sentence in enumerate(sentences)]
    return "```\n" + "\n".join(lines) + "\n```"


_SHAPES: dict[str, Callable[[random.Random, list[str]], str]] = {
    "paragraphs": _paragraphs,
    "prose": lambda _rng, sentences: " ".join(sentences),
    "lines": lambda _rng, sentences: "\n".join(sentences),
    "list": lambda _rng, sentences: "\n".join(f"- {sentence}" for sentence in sentences),
    "words": lambda _rng, sentences: " ".join(sentences).replace(".", "").lower(),
    "code": _code,
}
