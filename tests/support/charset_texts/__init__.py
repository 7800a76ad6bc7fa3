"""Texts in legacy encodings, to measure how well an undeclared charset is detected.

Each pair of encoding and language has eight texts: three of 80 to 200 characters, three of 201 to 600, two
of 601 to 1,500. Each encodes in its encoding and decodes to itself. Half of them are held out of tuning:
`tuning.json` is for choosing thresholds and rules, `held_out.json` is only for measuring the result, and is
not looked at while tuning. In each half of a pair, two texts are to be served with their language stated
(`lang`), and two without.

A file is a JSON array of objects with the fields of `CharsetText`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class CharsetText:
    """One text and the encoding it is served in.

    Args:
        encoding: the name of a Python codec, as `koi8-r`.
        language: BCP 47 tag of the language it is written in, as `zh-TW`.
        lang: what the page says of its language: `language`, or None where it says nothing.
        held_out: whether it is left out of tuning.
        text: the decoded text.
    """

    encoding: str
    language: str
    lang: str | None
    held_out: bool
    text: str

    @property
    def encoded(self) -> bytes:
        """Return the bytes a server sends."""
        return self.text.encode(self.encoding)


def _texts_in(name: str) -> list[CharsetText]:
    return [CharsetText(**row) for row in json.loads((_HERE / name).read_text(encoding="utf-8"))]


def tuning_texts() -> list[CharsetText]:
    """Return the texts that may be used for tuning."""
    return _texts_in("tuning.json")


def held_out_texts() -> list[CharsetText]:
    """Return the texts that are only measured."""
    return _texts_in("held_out.json")
