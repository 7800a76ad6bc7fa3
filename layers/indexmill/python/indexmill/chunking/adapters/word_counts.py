"""Token counter that works word by word, for tokenizers whose words do not influence each other."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, cast

from indexmill.chunking.ports import Marks

_PIECE: Final = re.compile(r"[ \u2581]{1,64}[^ \u2581\n]{0,4096}|[^ \u2581\n]{1,4096}|\n{1,64}")
"""One word with the blanks before it, or a run of newlines. Bounded: merging one run of millions is slow.
U+2581 is what byte-pair models take for a blank."""
_REMEMBERED_CHARS: Final = 200
_REMEMBERED_WORDS: Final = 40_000
"""About 6 MB; a fuller memory is thrown away and fills again."""
_UNCUT_TOKENS: Final = 16
"""A word of more tokens needs marks inside, so that it can be cut."""
_AT_ONCE_CHARS: Final = 65_536


class WordCounts:
    """Marks and counts by a memory of words."""

    def __init__(self, token_ends: Callable[[str], list[int]]) -> None:
        """`token_ends` tokenizes a text and returns where each token ends."""
        self._token_ends = token_ends
        self._known: dict[str, int] = {}

    def marks(self, text: str) -> Marks:
        """Measure a whole text."""
        if not text:
            return Marks((), ())
        words, counts, inner = self._measured(text)
        lengths = list(map(len, words))
        lengths[0] -= 1
        marks = Marks(list(accumulate(lengths)), list(accumulate(counts)))
        if max(counts) <= _UNCUT_TOKENS:
            return marks
        long = {word for word, number in zip(words, counts, strict=True) if number > _UNCUT_TOKENS}
        inner.update(self._tokenized(long - inner.keys()))
        return _with_inner(words, marks, inner)

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return sum(self._measured(text)[1]) if text else 0

    def _measured(self, text: str) -> tuple[list[str], list[int], dict[str, array[int]]]:
        """Return the words, their counts, and the inner ends of those words of many tokens that are new.

        The model sees a blank before every text, so the first word is measured with one more than it has.
        """
        words = _PIECE.findall(" " + text)
        counts = list(map(self._known.get, words))
        inner: dict[str, array[int]] = {}
        if None in counts:
            fresh = {word for word, number in zip(words, counts, strict=True) if number is None}
            learned: dict[str, int] = {}
            for word, ends in self._tokenized(fresh):
                learned[word] = len(ends)
                if len(ends) > _UNCUT_TOKENS:
                    inner[word] = ends
            self._remember(learned)
            counts = [learned[words[at]] if number is None else number for at, number in enumerate(counts)]
        return words, cast("list[int]", counts), inner

    def _remember(self, learned: dict[str, int]) -> None:
        if len(self._known) > _REMEMBERED_WORDS:
            # A new dict, not clear(): another thread may still be reading the old one.
            self._known = {}
        self._known.update(
            (word, number) for word, number in learned.items() if len(word) <= _REMEMBERED_CHARS
        )

    def _tokenized(self, words: Iterable[str]) -> Iterator[tuple[str, array[int]]]:
        """Tokenize words in big strokes; yields each with the offsets after its tokens."""
        for group in _groups(words):
            joined = "\n" + "\n".join(group)
            ends = self._token_ends(joined)
            start = 1
            for word in group:
                first, last = bisect_right(ends, start), bisect_right(ends, start + len(word))
                yield word, array("H", (end - start for end in ends[first:last]))
                start += len(word) + 1


def _groups(words: Iterable[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for word in words:
        if size > _AT_ONCE_CHARS:
            yield group
            group, size = [], 0
        group.append(word)
        size += len(word)
    if group:
        yield group


def _with_inner(words: list[str], marks: Marks, inner: Mapping[str, array[int]]) -> Marks:
    """Add the marks inside words of many tokens."""
    ends, tokens = array("I"), array("I")
    copied = 0
    for at, word in enumerate(words):
        if word not in inner:
            continue
        ends.extend(marks.ends[copied:at])
        tokens.extend(marks.tokens[copied:at])
        copied = at
        begin, before = marks.ends[at] - len(word), marks.tokens[at] - len(inner[word])
        # Each offset once: a character made of several tokens ends them all.
        for end, number in {end: number for number, end in enumerate(inner[word], start=1)}.items():
            if end < len(word):
                ends.append(begin + end)
                tokens.append(before + number)
    ends.extend(marks.ends[copied:])
    tokens.extend(marks.tokens[copied:])
    return Marks(ends, tokens)
