"""Highlights and neighbours of results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_search import MAX_ANSWER_BYTES, SearchRequest, SearchResult
from indexmill.embedding.analyzer import _folded_with_places, _tokens, _words, analyze, count_terms, spans
from indexmill.embedding.search import SearchCorpus
from tests.support.index_builders import CALLER, version
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.vector_index import InMemoryVectorIndex

pytestmark = pytest.mark.shows("P065")

ODD = st.text(
    alphabet=st.sampled_from(
        "aZ é\u0301ßÅ\u212bﬁ½①C++#.net の한국\u1112\u1161\u11abกา\u3099か\u202e\u200d👩İ\u2014…'\u2019\n-_"
        "ㄱㅏ\uffa1\uffc2\u0bc6\u0bbe"
    )
)


def marked(query: str, text: str) -> list[str]:
    return [text[start:end] for start, end in spans(text, count_terms(query))]


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("repair boats", "Boats: boat-repairs, repaired. Rebuilt!", ["Boats", "boat", "repairs", "repaired"]),
        ("the of", "the end of the line", []),
        ("zurich", "Zürich, ZÜRICH und Zu\u0308rich", ["Zürich", "ZÜRICH", "Zu\u0308rich"]),
        ("strasse", "Die Straße", ["Straße"]),
        ("c++ c# .net", "C, C++ and C# on .NET", ["C++", "C#", ".NET"]),
        ("東京", "東京都と京都", ["東京"]),
        ("東京都", "東京都と京都", ["東京都", "京都"]),
        ("office", "the o\ufb03ce", ["o\ufb03ce"]),
        ("sea", "<b>Sea</b> & sea", ["Sea", "sea"]),
        ("가나", "\u1100\u1161\u1102\u1161 ㄱㅏ", ["\u1100\u1161\u1102\u1161"]),
        ("각", "\u1100\u1161\u11a8", ["\u1100\u1161\u11a8"]),
        ("boat", "👩‍🚀 boat 👍 boat", ["boat", "boat"]),
    ],
)
def test_the_words_of_the_query_are_marked(query: str, text: str, expected: list[str]) -> None:
    assert marked(query, text) == expected


@given(st.one_of(st.text(max_size=60), ODD))
def test_parts_of_a_text_are_the_words_that_its_analysis_finds(text: str) -> None:
    folded, places = _folded_with_places(text)
    assert [folded[start:end] for start, end in _tokens(folded)] == _words(text)
    assert len(places) == len(folded)
    found = spans(text, count_terms(text))
    assert bool(found) == bool(analyze(text))
    ends = [0, *(end for _, end in found)]
    assert all(before <= start < end <= len(text) for before, (start, end) in zip(ends, found, strict=False))


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


def searched(embedder: HashEmbedder, texts: list[str], **request: Any) -> list[SearchResult]:
    index = InMemoryVectorIndex()
    vectors = embedder.embed(texts, timeout_s=1)
    made = version(texts, space=embedder.space)
    made.vectors.update(zip(made.chunk_ids, vectors, strict=True))
    index.publish([made])
    search = SearchCorpus(index, embedder, FrozenClock())
    return search(CALLER, SearchRequest(**request)).results


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
def test_results_have_highlights_where_they_are_asked_for(embedder: HashEmbedder, mode: str) -> None:
    texts = ["A boat, two boats", "Nothing of it"]
    [first, *_] = searched(embedder, texts, query="boat", mode=mode, highlights=True, top_k=2)
    asked = {"query": "boat", "mode": mode}
    found = {each.text: each.highlights for each in searched(embedder, texts, **asked, highlights=True)}
    assert first.highlights is not None
    assert [(each.start, each.end) for each in found[texts[0]] or ()] == [(2, 6), (12, 17)]
    assert mode == "keyword" or found[texts[1]] == []
    assert all(each.highlights is None for each in searched(embedder, texts, **asked))


def test_highlights_are_bounded(embedder: HashEmbedder) -> None:
    [many] = searched(embedder, ["boat " * 1_000], query="boat", highlights=True)
    assert len(many.highlights or ()) == 50
    [late] = searched(embedder, ["x" * 8_000 + " boat"], query="boat", highlights=True)
    assert late.highlights == []


def test_highlights_need_words(embedder: HashEmbedder) -> None:
    with pytest.raises(CallerError) as raised:
        searched(embedder, ["x"], query_embedding=[1.0] * 8, highlights=True)
    assert (raised.value.code, raised.value.field) == (ErrorCode.VALIDATION_ERROR, "body.highlights")


def test_results_have_their_neighbours(embedder: HashEmbedder) -> None:
    texts = [f"part {at}" for at in range(5)]
    asked = {"query": "part 2", "mode": "keyword", "top_k": 1}
    [best] = searched(embedder, texts, **asked, neighbours=3)
    assert best.text == "part 2"
    assert [each.text for each in best.preceding or ()] == ["part 0", "part 1"]
    assert [each.text for each in best.following or ()] == ["part 3", "part 4"]
    assert (best.following or ())[0].context == "Guide"
    [without] = searched(embedder, texts, **asked)
    assert (without.preceding, without.following) == (None, None)


def test_the_best_results_have_neighbours_while_the_answer_has_room(embedder: HashEmbedder) -> None:
    texts = [f"part {at} " + "ü" * (MAX_ANSWER_BYTES // 17) for at in range(5)]
    found = searched(embedder, texts, query="part", mode="keyword", neighbours=1)
    shown = [each.preceding is not None for each in found]
    assert (shown[0], shown[-1]) == (True, False)
    assert shown == sorted(shown, reverse=True)


@pytest.mark.shows("S36")
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("plain", 0),
        ("Zürich 東京 👍", 0),
        ("zero\u200bwidth\u200d\ufeff", 3),
        ("\u202egnirts\u202c and \u2067more\u2069", 4),
        ("so\u00adft", 1),
        ("".join(chr(0xE0000 + ord(letter)) for letter in "ignore"), 6),
    ],
)
def test_a_result_counts_its_invisible_characters(embedder: HashEmbedder, text: str, count: int) -> None:
    [found] = searched(embedder, [text], query_embedding=[1.0] * 8)
    assert (found.text, found.hidden_characters) == (text, count)
