"""Tokenizer on the `tokenizers` library and the model's own tokenizer.json.

Words repeat, and for most models a word's tokens do not depend on its neighbours. So a word is tokenized once
and its count remembered; a text is then measured by looking words up, six times as fast as tokenizing it. A
model for which that independence cannot be read off its file gets every text tokenized as a whole.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.chunking.adapters.word_counts import WordCounts
from indexmill.chunking.ports import Marks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenizers import Tokenizer


class ModelTokenizer:
    """Counts with one tokenizer.json; the file is read on first use, once."""

    def __init__(self, file: str | Path) -> None:
        """`file` is the model's tokenizer.json."""
        self._file = Path(file)
        self._tokenizer: Tokenizer | None = None
        self._by_word: WordCounts | None = None

    def load(self) -> Tokenizer:
        """Read the file now instead of on first use."""
        if self._tokenizer is not None:
            return self._tokenizer
        from tokenizers import Tokenizer

        content = self._file.read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # A page that mentions "</s>" means these four characters.
        tokenizer.encode_special_tokens = True
        self._by_word = WordCounts(self._ends) if words_are_independent(json.loads(content)) else None
        self._tokenizer = tokenizer
        return tokenizer

    def marks(self, text: str) -> Marks:
        """Measure a whole text at once."""
        self.load()
        if self._by_word is not None:
            return self._by_word.marks(text)
        # A character made of several tokens ends them all; the last one counts.
        last = dict(zip(self._ends(text), count(1)))
        ends, tokens = list(last), list(last.values())
        if text and (not ends or ends[-1] < len(text)):
            ends.append(len(text))
            tokens.append(tokens[-1] if tokens else 0)
        return Marks(ends, tokens)

    def count(self, text: str) -> int:
        """Return the tokens of `text` as a model input of its own, without special tokens."""
        self.load()
        return self._by_word.count(text) if self._by_word is not None else len(self._encode(text).ids)

    def _ends(self, text: str) -> list[int]:
        return [end for _, end in self._encode(text).offsets]

    def _encode(self, text: str) -> Any:
        try:
            return self.load().encode(text, add_special_tokens=False)
        except TypeError:
            # How the library says that the text is not valid Unicode.
            text.encode()
            raise


def words_are_independent(config: dict[str, Any]) -> bool:
    """Return whether the tokens of a word, leading blanks included, are the same in any context.

    True for WordPiece as BERT does it, which splits at white space first, and for SentencePiece's byte-pair
    models with blanks written as U+2581, if no token continues across such a sign or a newline.
    """
    model = config["model"]
    splitter = config.get("pre_tokenizer")
    if model.get("type") == "WordPiece":
        return splitter is not None and splitter.get("type") == "BertPreTokenizer"
    if model.get("type") != "BPE" or splitter is not None:
        return False
    steps = [step.get("type") for step in (config.get("normalizer") or {}).get("normalizers", ())]
    return steps == ["Prepend", "Replace"] and not _any_token_joins_words(model["vocab"])


def _any_token_joins_words(vocabulary: Iterable[str]) -> bool:
    return any("\n" in token or "\u2581" in token.lstrip("\u2581") for token in vocabulary)
