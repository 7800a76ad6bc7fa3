"""What Chunking needs from outside: the model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Marks:
    """Where a text may be cut without cutting a token, and how many tokens lie before each place.

    `ends` are character offsets, strictly ascending, the last is the text's length; `tokens` lies beside it
    and never decreases. Both are empty for an empty text.
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
