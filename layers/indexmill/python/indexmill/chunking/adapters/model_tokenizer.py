"""Tokenizer on the `tokenizers` library and the model's own tokenizer.json.

Words repeat, and for most models a word's tokens do not depend on its neighbours. So a word is tokenized once
and its count remembered; a text is then measured by looking words up, six times as fast as tokenizing it. A
model for which that independence cannot be read off its file gets every text tokenized as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

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
        self._version = ""

    @property
    def version(self) -> str:
        """Digest of the file's content, 16 hexadecimal digits."""
        self.load()
        return self._version

    def load(self) -> Tokenizer:
        """Read the file now instead of on first use."""
        if self._tokenizer is not None:
            return self._tokenizer
        from tokenizers import Tokenizer

        content = self._file.read_bytes()
        self._version = hashlib.sha256(content).hexdigest()[:16]
        tokenizer = Tokenizer.from_buffer(content)
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

    def count_part(self, text: str, marks: Marks, part: slice, before: str) -> int:
        """Return the tokens of `before` and a part of `text` together."""
        self.load()
        if self._by_word is not None and marks.whole_words:
            return self._by_word.count_part(text, marks, part, before)
        return self.count(before + text[part])

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


_PIECE: Final = re.compile(r"[ \u2581]{1,64}[^ \u2581\n]{0,4096}|[^ \u2581\n]{1,4096}|\n{1,64}")
"""One word with the blanks before it, or a run of newlines. Bounded: merging one run of millions is slow.
U+2581 is what byte-pair models take for a blank."""
_REMEMBERED_CHARS: Final = 200
_REMEMBERED_WORDS: Final = 120_000
"""About 18 MB. A fuller memory becomes the older of two; words that are used again move to the newer."""
_UNCUT_TOKENS: Final = 16
"""A word of more tokens needs marks inside, so that it can be cut."""
_AT_ONCE_CHARS: Final = 65_536


class WordCounts:
    """Marks and counts by a memory of words."""

    def __init__(self, token_ends: Callable[[str], list[int]]) -> None:
        """`token_ends` tokenizes a text and returns where each token ends."""
        self._token_ends = token_ends
        self._known: dict[str, int] = {}
        self._older: dict[str, int] = {}

    def marks(self, text: str) -> Marks:
        """Measure a whole text."""
        if not text:
            return Marks((), ())
        words, counts, inner = self._measured(text)
        lengths = list(map(len, words))
        lengths[0] -= 1
        marks = Marks(
            list(accumulate(lengths)), list(accumulate(counts)), whole_words=max(counts) <= _UNCUT_TOKENS
        )
        if marks.whole_words:
            return marks
        long = {word for word, number in zip(words, counts, strict=True) if number > _UNCUT_TOKENS}
        more = self._tokenized(long - inner.keys())
        inner.update((word, ends) for word, _, ends in more if ends is not None)
        return _with_inner(words, marks, inner)

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return sum(self._measured(text)[1]) if text else 0

    def count_part(self, text: str, marks: Marks, part: slice, before: str) -> int:
        """Count the first word, which may have lost its blanks; the others are known from the marks."""
        first, last = bisect_right(marks.ends, part.start), bisect_left(marks.ends, part.stop)
        if first >= last or marks.ends[last] != part.stop:
            return self.count(before + text[part])
        start = self.count(before + text[part.start : marks.ends[first]])
        return start + marks.tokens[last] - marks.tokens[first]

    def _measured(self, text: str) -> tuple[list[str], list[int], dict[str, array[int]]]:
        """Return the words, their counts, and the inner ends of those words of many tokens that are new.

        The model sees a blank before every text, so the first word is measured with one more than it has.
        """
        words = _PIECE.findall(" " + text)
        counts = list(map(self._known.get, words))
        inner: dict[str, array[int]] = {}
        if None in counts:
            missing = {word for word, number in zip(words, counts, strict=True) if number is None}
            older = self._older
            learned = {word: older[word] for word in missing if word in older}
            for word, number, ends in self._tokenized(missing - learned.keys()):
                learned[word] = number
                if ends is not None:
                    inner[word] = ends
            self._remember(learned)
            counts = [learned[words[at]] if number is None else number for at, number in enumerate(counts)]
        return words, cast("list[int]", counts), inner

    def _remember(self, learned: dict[str, int]) -> None:
        if len(self._known) > _REMEMBERED_WORDS:
            # A new dict, not clear(): another thread may still be reading the old one.
            self._older, self._known = self._known, {}
        self._known.update(
            (word, number) for word, number in learned.items() if len(word) <= _REMEMBERED_CHARS
        )

    def _tokenized(self, words: Iterable[str]) -> Iterator[tuple[str, int, array[int] | None]]:
        """Tokenize words in large groups; yield each with its tokens, and where they end if they are many."""
        for group in _groups(words):
            ends = self._token_ends("\n" + "\n".join(group))
            start, last = 1, 0
            for word in group:
                first = bisect_right(ends, start, last)
                last = bisect_right(ends, start + len(word), first)
                many = last - first > _UNCUT_TOKENS
                yield (
                    word,
                    last - first,
                    array("H", (end - start for end in ends[first:last])) if many else None,
                )
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
