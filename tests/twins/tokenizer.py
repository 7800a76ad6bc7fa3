"""A tokenizer without a model: every word and every sign is a token."""

from __future__ import annotations

import re

from indexmill.chunking.ports import Marks

_TOKEN = re.compile(r"\w+|[^\w\s]")


class WordTokenizer:
    """White space separates tokens and costs nothing."""

    version = "words"

    def marks(self, text: str) -> Marks:
        """Measure a whole text."""
        text.encode()
        ends = [token.end() for token in _TOKEN.finditer(text)]
        tokens = list(range(1, len(ends) + 1))
        if text and (not ends or ends[-1] < len(text)):
            ends.append(len(text))
            tokens.append(tokens[-1] if tokens else 0)
        return Marks(ends, tokens)

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        text.encode()
        return len(_TOKEN.findall(text))

    def count_part(self, text: str, marks: Marks, part: slice, before: str) -> int:
        """Return the number of tokens of both together."""
        return self.count(before + text[part])
