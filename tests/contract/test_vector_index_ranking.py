"""Ranking of every vector index: the same cases over the twin in memory and over a real Postgres."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.contracts.messages import Target
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import POOL, Candidate, Lists, SearchQuery, VectorIndex
from indexmill.platform.postgres.database import Database
from tests.support.index_builders import SPACE, find, results, target, vector_of, version
from tests.twins.vector_index import InMemoryVectorIndex

WORDS = [f"term{number}" for number in range(60)]


@pytest.fixture(params=["memory", "postgres"])
def index(request: pytest.FixtureRequest) -> Iterator[VectorIndex]:
    if request.param == "memory":
        yield InMemoryVectorIndex()
        return
    database = Database(request.getfixturevalue("database_url"))
    yield PgVectorIndex(database)
    database.close()


def test_rarer_words_and_repeated_words_weigh_more(index: VectorIndex) -> None:
    texts = ["common rare", "common common filler", "common filler filler filler filler", "other words"]
    index.publish([version(texts)])
    assert find(index, "common rare")[0] == "common rare"
    assert find(index, "common common")[0] == "common common filler"
    assert find(index, "common") == [
        "common common filler",
        "common rare",
        "common filler filler filler filler",
    ]


def test_words_match_by_stem_and_without_stop_words(index: VectorIndex) -> None:
    index.publish([version(["The cats were running", "a dog sleeps"])])
    assert find(index, "cat runs") == ["The cats were running"]
    assert find(index, "the a were") == []


@pytest.mark.shows("S37")
def test_scores_fall_and_stay_between_zero_and_one(index: VectorIndex) -> None:
    rng = random.Random(5)
    index.publish([version([" ".join(rng.choices(WORDS, k=12)) for _ in range(50)])])
    for text, vector in (
        ("term1 term2 term3", None),
        ("term1 term2", vector_of("q")),
        (None, vector_of("q")),
    ):
        scores = [score for _, score in results(index, text, vector, 50)]
        assert len(scores) > 10
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)


@pytest.mark.shows("S37")
def test_top_k_is_the_most_and_fifty_exact_copies_all_count(index: VectorIndex) -> None:
    index.publish([version(["copied text"] * 50)])
    assert len(find(index, "copied", top_k=7)) == 7
    assert len(find(index, "copied", top_k=100)) == 50


def test_hybrid_prefers_what_both_lists_have(index: VectorIndex) -> None:
    texts = [*(f"filler number{at}" for at in range(30)), "exact match here"]
    index.publish([version(texts)])
    hits = results(index, "exact match", vector_of("exact match here"))
    assert hits[0][0].text == "exact match here"
    assert hits[0][1] == pytest.approx(1.0)
    assert len(hits) == 10


def test_a_question_of_unknown_words_is_answered_by_its_vector(index: VectorIndex) -> None:
    index.publish([version(["alpha", "beta"])])
    assert find(index, "zzz", vector=vector_of("beta"))[0] == "beta"
    assert find(index, "zzz") == []


ODD_QUESTIONS = [
    "\0",
    "a\0b",
    "",
    "   ",
    "'; DROP TABLE chunks; --",
    "% %s %(x)s",
    "\ud800",
    "\\",
    "((",
    "💥",
]


@pytest.mark.parametrize("text", [*ODD_QUESTIONS, "a" * 2000, "the"])
def test_odd_questions_are_only_questions(index: VectorIndex, text: str) -> None:
    index.publish([version(["alpha beta"])])
    assert find(index, text) == []
    assert find(index, text, vector=vector_of("alpha beta")) == ["alpha beta"]


def test_odd_texts_are_kept_and_dropped_again(index: VectorIndex) -> None:
    odd = [
        "nul \0 inside",
        "emoji 💥 boom",
        "tab\tand\nline",
        "日本語のテキスト",
        "größe café naïve",
        "C++ and C#",
    ]
    index.publish([version(odd)])
    assert find(index, "inside") == ["nul \ufffd inside"]
    assert find(index, "日本") == ["日本語のテキスト"]
    assert find(index, "cafe") == ["größe café naïve"]
    assert find(index, "c++") == ["C++ and C#"]
    index.publish([version(["plain"], 2)])
    assert [find(index, word) for word in ("inside", "日本", "cafe", "c++", "boom", "line")] == [[]] * 6


def test_a_vector_of_another_dimension_is_refused(index: VectorIndex) -> None:
    index.publish([version(["alpha"])])
    with pytest.raises(PermanentError):
        find(index, None, vector=[1.0, 2.0])


def test_twin_and_postgres_rank_alike(database_url: str) -> None:
    database, twin = Database(database_url), InMemoryVectorIndex()
    real = PgVectorIndex(database)
    rng = random.Random(11)
    for number in range(20):
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(5, 40))) for _ in range(10)]
        made = version(texts, to=target(f"https://a.example/{number}"))
        twin.publish([made])
        real.publish([made])
    for number in range(10):
        again = version(["term1 rewritten", "term2"], 2, to=target(f"https://a.example/{2 * number}"))
        twin.publish([again])
        real.publish([again])
    for _ in range(20):
        text = " ".join(rng.choices(WORDS, k=4))
        ours, theirs = results(twin, text, None, 100), results(real, text, None, 100)
        assert [hit.chunk_id for hit, _ in ours] == [hit.chunk_id for hit, _ in theirs]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs])
    database.close()


def test_the_pool_is_cut_by_chunk_id_among_equal_scores(index: VectorIndex) -> None:
    made = [version(["copied text"] * 60, to=target(f"https://a.example/{number}")) for number in range(5)]
    index.publish(made)
    least = sorted(chunk_id for each in made for chunk_id in each.chunk_ids)[:POOL]
    lists = index.lists(SearchQuery([target().corpus_key], SPACE, "copied", vector_of("copied text")))
    assert [each.chunk_id for each in lists.keyword] == least
    assert [each.chunk_id for each in lists.vector] == least


def test_several_corpora_rank_as_one_with_all_of_their_chunks(index: VectorIndex) -> None:
    """Scores are those of one corpus that has all of the chunks: its counts, and its average length."""
    rng = random.Random(3)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(5, 40))) for _ in range(90)]
    parts = [target("https://a.example/", f"part-{number}") for number in range(3)]
    together = target("https://a.example/", "together")
    index.publish([version(texts[at::3], to=part) for at, part in enumerate(parts)])
    index.publish([version(texts, to=together)])
    vector = vector_of("q")

    def found(corpora: list[Target]) -> list[list[tuple[str, float]]]:
        keys = [each.corpus_key for each in corpora]
        lists = index.lists(SearchQuery(keys, SPACE, "term1 term2 term3", vector))
        text = {
            chunk_id: hit.text
            for chunk_id, hit in index.hits(keys, [each.chunk_id for each in _all(lists)]).items()
        }
        return [[(text[each.chunk_id], each.score) for each in one] for one in (lists.keyword, lists.vector)]

    keyword, vectors = found(parts)
    expected = found([together])
    assert len(keyword) > 50
    assert len(vectors) == 90
    assert [sorted(keyword), sorted(vectors)] == [sorted(each) for each in expected]


def _all(lists: Lists) -> list[Candidate]:
    return [*lists.keyword, *lists.vector]
