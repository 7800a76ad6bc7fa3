"""Analyzer of text into index terms, the same for chunks and queries.

Lower-cased words without English stop words, reduced to their stems by Snowball; accents are folded; names
such as `c++`, `c#` and `.net` stay whole; scripts without spaces become overlapping pairs of characters.
"""

from __future__ import annotations

import re
import threading
import unicodedata
import zlib
from collections import Counter
from collections.abc import Container, Iterator
from hashlib import sha256
from typing import Final

import Stemmer

ANALYZER_VERSION: Final = 1
"""Raised by every change after which the same text may give other terms."""
DEFAULT_LANGUAGE: Final = "en"

_CACHE_SIZE: Final = 200_000
_SKIPPED: Final = -1

STOP_WORDS: Final = frozenset(
    """
    a about above after again against all am an and any are aren as at be because been before being below
    between both but by can could couldn d did didn do does doesn doing down during each few for from
    further had hadn has hasn have haven having he her here hers herself him himself his how i if in into
    is isn it its itself just ll m me more most my myself no nor not now of off on once only or other our
    ours ourselves out over own re s same she should shouldn so some such t than that the their theirs
    them themselves then there these they this those through to too under until up ve very was wasn we
    were weren what when where which while who whom why will with would wouldn you your yours yourself
    yourselves
    """.split()  # noqa: SIM905
)

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han, kana
    "\uac00-\ud7af"  # Hangul
    "\U00020000-\U000323af"
)
_NAME: Final = r"[a-z](?:\+\+|#)(?!\w)|(?<!\w)\.net(?!\w)"
_PLAIN_TOKEN: Final = re.compile(rf"{_NAME}|[a-z0-9]+")
_TOKEN: Final = re.compile(rf"{_NAME}|[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[\u0900-\u0dff])+")
_TO_WORDS: Final = bytes(
    ord(chr(byte).lower()) if chr(byte).isalnum() else 32 for byte in range(128)
) + bytes(128)
_PUNCTUATION: Final = re.compile(
    "[\u0080-\u00a9\u00ab-\u00b1\u00b6-\u00b8\u00bb\u00bf\u2000-\u206f\u3000-\u3003]+"
)
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")
# Marks that people leave out when they type: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowels.
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670]")

_JOINING: Final = re.compile(
    "[\u1161-\u1175\u11a8-\u11c2\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf"
    "\u102e\u1b35\U00011127\U0001133e\U00011357\U000114b0\U000114ba\U000114bd\U000115af\U00011930]"
)
"""What forms one character with the one before: vowels and ends of Hangul syllables, Indic vowel signs."""

_stemmer: Final = Stemmer.Stemmer("english")
_lock: Final = threading.Lock()  # the stemmer is not safe for threads
_term_of_word: Final[dict[str, int]] = {}


def analyze(text: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the terms of `text` in order, with repetitions.

    All languages share one analysis for now: a query's language cannot be detected from two words, and both
    sides must agree. `language` is the chunk's own attribute.
    """
    del language
    kept = [word for word in _words(text) if word not in STOP_WORDS]
    with _lock:
        return [str(stem) for stem in _stemmer.stemWords(kept)]


def term_ids(terms: list[str]) -> list[int]:
    """Return a 31-bit number per term, the same in every process and release."""
    return [_term_id(term) for term in terms]


def count_terms(text: str, language: str = DEFAULT_LANGUAGE) -> Counter[int]:
    """Return how often each term id occurs in `text`: `analyze` and `term_ids` in one, by a word cache."""
    del language
    words = _words(text)
    known = _term_of_word.__getitem__
    try:
        found = Counter(map(known, words))
    except KeyError:
        _learn(set(words))
        try:
            found = Counter(map(known, words))
        except KeyError:  # another thread emptied the cache just now
            return Counter(term_ids(analyze(text)))
    del found[_SKIPPED]
    return found


def spans(text: str, terms: Container[int]) -> list[tuple[int, int]]:
    """Return the parts of `text` whose terms are among `terms`, as start and end in code points, in order."""
    folded, places = (text.lower(), None) if text.isascii() else _folded_with_places(text)
    found: list[tuple[int, int]] = []
    for first, behind in _tokens(folded):
        if _term_of(folded[first:behind]) not in terms:
            continue
        start, end = (first, behind) if places is None else (places[first][0], places[behind - 1][1])
        if found and start < found[-1][1]:
            # Pairs of characters of a script without spaces.
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _tokens(folded: str) -> Iterator[tuple[int, int]]:
    """Yield where the words are that `_words` returns of the same text."""
    for match in (_PLAIN_TOKEN if folded.isascii() else _TOKEN).finditer(folded):
        start, end = match.span()
        if end - start > 1 and _IS_UNSPACED.match(folded, start):
            yield from ((at, at + 2) for at in range(start, end - 1))
        else:
            yield start, end


def _folded_with_places(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return `_folded(text)` and, for each of its characters, where that comes from."""
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = start + 1
        # A character is folded together with its marks, and with what forms one character with it.
        while end < len(text) and _continues(text[end]):
            end += 1
        pieces.append(_folded(text[start:end]).casefold())
        places += [(start, end)] * len(pieces[-1])
        start = end
    return "".join(pieces), places


def _continues(character: str) -> bool:
    if character.isascii():
        return False
    apart = unicodedata.normalize("NFKD", character)
    return unicodedata.combining(character) > 0 or _JOINING.match(apart) is not None


def _term_of(word: str) -> int:
    if word not in _term_of_word:
        _learn({word})
    return _term_of_word.get(word, _SKIPPED)


def _learn(words: set[str]) -> None:
    with _lock:
        new = words.difference(_term_of_word)
        if len(_term_of_word) + len(new) > _CACHE_SIZE:
            _term_of_word.clear()
            new = words
        for word in new:
            stop = word in STOP_WORDS
            _term_of_word[word] = _SKIPPED if stop else _term_id(_stemmer.stemWord(word))


def _term_id(term: str) -> int:
    return zlib.crc32(term.encode("utf-8", "replace")) & 0x7FFFFFFF


def _words(text: str) -> list[str]:
    folded = text if text.isascii() else _folded(text)
    if folded.isascii():
        return _plain_words(folded.lower())
    words: list[str] = []
    for token in _TOKEN.findall(folded):
        if len(token) > 1 and _IS_UNSPACED.match(token):
            words += [token[at : at + 2] for at in range(len(token) - 1)]
        else:
            words.append(token)
    return words


def _plain_words(text: str) -> list[str]:
    if "+" in text or "#" in text or ".net" in text:
        return _PLAIN_TOKEN.findall(text)
    return text.encode().translate(_TO_WORDS).decode().split()


def _folded(text: str) -> str:
    """Return compatibility forms unified, accents and typographic punctuation dropped, lower case."""
    text = _PUNCTUATION.sub(" ", text)
    if text.isascii():
        return text
    apart = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", apart).casefold()


def term_of_text(context: str, text: str) -> int:
    """Return the term by which equal texts are found: below 0, as no word's is."""
    whole = f"{context}\n\n{text}" if context else text
    return int.from_bytes(sha256(whole.encode()).digest()[:4], signed=True) | -(2**31)
