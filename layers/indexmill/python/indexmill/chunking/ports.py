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
    whole_words: bool = False
    """Each mark ends a word whose tokens do not depend on its neighbours."""


class Tokenizer(Protocol):
    """Counts tokens as the embedding model does. All calls raise UnicodeEncodeError on lone surrogates."""

    @property
    def version(self) -> str:
        """Digest of the tokenizer: two with one version count alike."""
        ...

    def marks(self, text: str) -> Marks:
        """Measure a whole text at once."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of `text` as a model input of its own, without special tokens."""
        ...

    def count_part(self, text: str, marks: Marks, part: slice, before: str) -> int:
        """Return the tokens of `before` and a part of `text` together; `marks` are those of `text`.

        `before` is empty or ends with a newline, and the part begins and ends with a visible character.
        """
        ...
