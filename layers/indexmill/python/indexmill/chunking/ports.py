"""Port of Chunking: the model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Marks:
    """Offsets at which a text may be cut without cutting a token, and the number of tokens before each.

    `ends` are character offsets, strictly ascending, the last is the text's length; `tokens` is parallel to
    it and never decreases. Both are empty for an empty text.
    """

    ends: Sequence[int]
    tokens: Sequence[int]


class Tokenizer(Protocol):
    """Counts tokens as the embedding model does. Both calls raise UnicodeEncodeError on lone surrogates."""

    def marks(self, text: str) -> Marks:
        """Measure a whole text at once."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of `text` as a model input of its own, without special tokens."""
        ...
