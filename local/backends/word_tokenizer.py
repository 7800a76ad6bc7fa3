"""Cache in front of the model's tokenizer, word by word: known words cost a dictionary lookup.

The tokenizer itself treats a whole text as one long word, and most of an embedding request's time is spent
there. None of its tokens continues past the end of a word into the next space, so that texts can be cut in
front of spaces without changing a single id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

TokenIds = NDArray[np.int32]

_WORDS = re.compile(" +[^ ]*")
_SPACE = "\u2581"
_NOT_CUTTABLE = re.compile(f"{_SPACE}|</?s>|<unk>")
"""The tokenizer's space character, and its special tokens, which it matches before anything else."""

_MAX_REMEMBERED = 20_000
_MAX_WORD_LENGTH = 40


class WordTokenizer:
    """Token ids of texts, without special tokens, identical to those of the tokenizer."""

    def __init__(self, tokenizer_file: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # A space at the very end is a word without letters; the tokenizer returns nothing for an empty text.
        self._at_first = {" ": self._encoded(["a "])[0][-1:]}
        self._remembered = dict(self._at_first)

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """Return one array of ids per text. Raises UnicodeEncodeError or TypeError for invalid Unicode."""
        return [self._ids(text) for text in texts]

    def _ids(self, text: str) -> TokenIds:
        if not text:
            return np.empty(0, np.int32)
        if _NOT_CUTTABLE.search(text):
            return np.array(self._encoded([text])[0], np.int32)
        words = _WORDS.findall(f" {text}")
        remembered = self._remembered
        unknown = list({word for word in words if word not in remembered})
        # The tokenizer puts a space in front of its input.
        new = (
            dict(zip(unknown, self._encoded([word[1:] for word in unknown]), strict=True)) if unknown else {}
        )
        ids = [remembered[word] if word in remembered else new[word] for word in words]
        self._remember(new)
        return np.fromiter(chain.from_iterable(ids), np.int32)

    def _encoded(self, texts: list[str]) -> list[tuple[int, ...]]:
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [tuple(one.ids) for one in encoded]

    def _remember(self, new: dict[str, tuple[int, ...]]) -> None:
        if len(self._remembered) + len(new) > _MAX_REMEMBERED:
            self._remembered = dict(self._at_first)
        self._remembered.update((word, ids) for word, ids in new.items() if len(word) <= _MAX_WORD_LENGTH)
