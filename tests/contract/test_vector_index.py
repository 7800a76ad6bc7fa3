"""Conformance of every vector index: the same cases over the twin in memory and over a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest

from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.analyzer import ANALYZER_VERSION
from indexmill.embedding.ports import PublishOutcome, SearchQuery, Space, VectorIndex
from indexmill.platform.postgres.database import Database
from tests.support.index_builders import SPACE, find, results, target, vector_of, version
from tests.twins.vector_index import InMemoryVectorIndex

PUBLISHED, SUPERSEDED, FENCED = PublishOutcome.PUBLISHED, PublishOutcome.SUPERSEDED, PublishOutcome.FENCED


@dataclass
class Harness:
    """An index, and what the Orchestrator does to its documents."""

    index: VectorIndex
    fence: Callable[[str, int], None]
    """Refuses generations of a document below a number."""


@pytest.fixture(params=["memory", "postgres"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "memory":
        twin = InMemoryVectorIndex()
        yield Harness(twin, twin.fence)
        return
    url: str = request.getfixturevalue("database_url")
    database = Database(url)

    def fence(document_id: str, generation: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "UPDATE documents SET min_generation = %s WHERE document_id = %s", (generation, document_id)
            )

    yield Harness(PgVectorIndex(database), fence)
    database.close()


@pytest.fixture
def index(harness: Harness) -> VectorIndex:
    return harness.index


def test_a_published_version_is_found_whole(index: VectorIndex) -> None:
    made = version(["alpha one", "beta two", "gamma three"])
    made.chunker = "of the test"
    assert index.publish([made]) == [PUBLISHED]
    ((hit, score),) = results(index, "beta")
    assert (hit.text, hit.corpus_key, hit.generation) == ("beta two", made.target.corpus_key, 1)
    assert (hit.chunk_id, hit.document_id) == (made.chunk_ids[1], made.target.document_id)
    assert (hit.ordinal, hit.start, hit.end, hit.context) == (1, 100, 108, "Guide")
    assert (hit.source_url, hit.title) == (made.target.url, "Title 1")
    assert (hit.model, hit.dimension, hit.analyzer) == (SPACE.model, SPACE.dimension, ANALYZER_VERSION)
    assert (hit.chunker, hit.indexed_at) == ("of the test", made.searchable_at)
    assert 0 < score <= 1


def test_context_is_indexed_with_the_text(index: VectorIndex) -> None:
    index.publish([version(["alpha"])])
    assert find(index, "guide") == ["alpha"]


def test_stored_tells_which_vectors_of_a_space_are_kept(index: VectorIndex) -> None:
    made = version(["alpha", "beta"])
    assert index.stored(SPACE, made.chunk_ids) == set()
    index.publish([made])
    assert index.stored(SPACE, [*made.chunk_ids, "f" * 64]) == set(made.chunk_ids)
    assert index.stored(Space("other", 4), made.chunk_ids) == set()
    assert index.stored(SPACE, []) == set()


def test_publishing_names_the_chunks_that_only_the_version_before_had(index: VectorIndex) -> None:
    first = version(["alpha", "beta", "gamma"])
    index.publish([first])
    second = version(["alpha", "delta"], 2)
    index.publish([second])
    assert (first.removed, sorted(second.removed)) == ([], sorted(first.chunk_ids[1:]))


def test_an_empty_version_takes_a_document_out_of_search(index: VectorIndex) -> None:
    kept, made = version(["alpha beta"], to=target("other")), version(["alpha", "gamma"])
    index.publish([kept])
    index.publish([made])
    empty = version([], 2)
    assert index.publish([empty]) == [PUBLISHED]
    assert sorted(empty.removed) == sorted(made.chunk_ids)
    assert find(index, "alpha") == ["alpha beta"]
    assert index.stored(SPACE, made.chunk_ids) == set()
    assert index.publish([version(["alpha", "gamma"], 3)]) == [PUBLISHED]
    assert find(index, "gamma") == ["gamma"]


@pytest.mark.fault("F40")
def test_a_shorter_version_leaves_nothing_of_the_longer_one(index: VectorIndex) -> None:
    index.publish([version([f"word{at} common" for at in range(10)])])
    again = version([f"word{at} common" for at in range(4)], 2)
    assert index.publish([again]) == [PUBLISHED]
    assert sorted(find(index, "common", top_k=100)) == [f"word{at} common" for at in range(4)]
    assert len(find(index, None, vector=vector_of("x"), top_k=100)) == 4


def test_unchanged_chunks_need_no_vector_and_move_along(index: VectorIndex) -> None:
    index.publish([version(["alpha", "beta"])])
    second = version(["new first", "beta"], 2)
    moved = version(["new first", "beta"], 2, without=index.stored(SPACE, second.chunk_ids))
    assert set(moved.vectors) == {moved.chunk_ids[0]}
    assert index.publish([moved]) == [PUBLISHED]
    assert sorted(find(index, None, vector=vector_of("beta"))) == ["beta", "new first"]
    assert find(index, "alpha") == []


def test_publishing_again_is_harmless(index: VectorIndex) -> None:
    made = version(["alpha", "beta"])
    assert index.publish([made]) == [PUBLISHED]
    assert index.publish([made]) == [PUBLISHED]
    assert sorted(find(index, "alpha beta")) == ["alpha", "beta"]


def test_an_older_generation_changes_nothing(index: VectorIndex) -> None:
    index.publish([version(["new"], 5)])
    assert index.publish([version(["old"], 4)]) == [SUPERSEDED]
    assert find(index, "new old") == ["new"]


@pytest.mark.fault("F14", "F15")
def test_a_fenced_generation_is_never_published(harness: Harness) -> None:
    harness.index.publish([version(["first"], 1)])
    harness.fence(target().document_id, 4)
    assert harness.index.publish([version(["canceled"], 3)]) == [FENCED]
    assert find(harness.index, "first canceled") == ["first"]
    assert harness.index.publish([version(["retried"], 4)]) == [PUBLISHED]
    assert find(harness.index, "first retried") == ["retried"]


def test_two_fenced_generations_in_one_call_leave_what_was_published(harness: Harness) -> None:
    harness.index.publish([version(["first"], 1)])
    harness.fence(target().document_id, 9)
    both = [version(["older"], 7), version(["newer"], 8)]
    assert harness.index.publish(both) == [FENCED, FENCED]
    assert find(harness.index, "first older newer") == ["first"]


def test_two_generations_of_a_document_in_one_call(index: VectorIndex) -> None:
    assert index.publish([version(["new"], 2), version(["old"], 1), version(["new"], 2)]) == [
        PUBLISHED,
        SUPERSEDED,
        PUBLISHED,
    ]
    assert find(index, "old new") == ["new"]


def test_a_missing_vector_publishes_nothing_of_the_call(index: VectorIndex) -> None:
    other = target("https://b.example/")
    incomplete = version(["beta"], vectors={})
    with pytest.raises(TransientError) as raised:
        index.publish([version(["alpha"], to=other), incomplete])
    assert raised.value.code == ErrorCode.EMBEDDING_INCOMPLETE
    assert find(index, "alpha beta") == []
    assert index.publish([version(["alpha"], to=other)]) == [PUBLISHED]


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        ([1.0, 0.0, 0.0], ErrorCode.DIMENSION_MISMATCH),
        ([0.0, 0.0, 0.0, 0.0], ErrorCode.VECTOR_REJECTED),
        ([1.0, float("nan"), 0.0, 0.0], ErrorCode.VECTOR_REJECTED),
        ([1.0, float("inf"), 0.0, 0.0], ErrorCode.VECTOR_REJECTED),
    ],
)
def test_a_bad_vector_leaves_the_previous_version(index: VectorIndex, vector: list[float], code: str) -> None:
    index.publish([version(["kept"], 1)])
    bad = version(["broken"], 2)
    bad.vectors[bad.chunk_ids[0]] = vector
    with pytest.raises(PermanentError) as raised:
        index.publish([version(["fine"], to=target("https://b.example/")), bad])
    assert raised.value.code == code
    assert find(index, "kept fine broken") == ["kept"]


def test_vectors_of_any_length_count_by_direction(index: VectorIndex) -> None:
    big = version(["big", "small"])
    for chunk_id, vector in zip(big.chunk_ids, ([9e5, 0, 0, 0], [0, 1e-7, 0, 0]), strict=True):
        big.vectors[chunk_id] = vector
    index.publish([big])
    hits = results(index, None, [3.0, 0.1, 0.0, 0.0])
    assert [hit.text for hit, _ in hits] == ["big", "small"]
    assert [score for _, score in hits] == pytest.approx([0.99944, 0.03331], abs=1e-3)


@pytest.mark.shows("S2")
def test_corpora_are_apart(index: VectorIndex) -> None:
    mine, other = target(corpus="mine"), target(corpus="mine", caller="f" * 16)
    index.publish([version(["alpha secret"], to=mine), version(["alpha public"], to=other)])
    assert find(index, "alpha", to=mine) == ["alpha secret"]
    assert find(index, None, vector=vector_of("alpha secret"), to=other) == ["alpha public"]


def test_a_corpus_exists_once_something_was_published(index: VectorIndex) -> None:
    assert not index.corpus_exists(target().corpus_key)
    assert find(index, "alpha") == []
    index.publish([version(["alpha"])])
    assert index.corpus_exists(target().corpus_key)
    assert not index.corpus_exists(target(corpus="other").corpus_key)


def test_a_new_space_replaces_the_old_vectors(index: VectorIndex) -> None:
    index.publish([version(["alpha"])])
    wide = Space("wide", 6)
    assert index.publish([version(["alpha"], 2, space=wide)]) == [PUBLISHED]
    made = version(["alpha"], 2, space=wide)
    assert index.stored(wide, made.chunk_ids) == set(made.chunk_ids)
    assert index.stored(SPACE, made.chunk_ids) == set()
    assert find(index, None, vector=vector_of("alpha", wide), space=wide) == ["alpha"]
    assert find(index, "alpha") == ["alpha"]


def test_an_empty_call_and_an_empty_document(index: VectorIndex) -> None:
    assert index.publish([]) == []
    index.publish([version(["alpha"])])
    assert index.publish([version([], 2)]) == [PUBLISHED]
    assert find(index, "alpha") == []


def test_a_chunk_named_twice_is_refused(index: VectorIndex) -> None:
    made = version(["alpha", "beta"])
    twice = version(["alpha", "beta"], 2)
    object.__setattr__(twice, "chunk_ids", [made.chunk_ids[0]] * 2)
    with pytest.raises(PermanentError):
        index.publish([twice])


@pytest.mark.shows("R170")
def test_a_search_reports_that_its_corpus_has_vectors_of_another_model(index: VectorIndex) -> None:
    """Whichever model came first, and whether or not anything was embedded by the new one yet."""
    other, theirs = target("https://b.example/"), target("https://c.example/", "another corpus")
    first, second = SPACE, Space("second", 4)

    def reported(space: Space, text: str | None = "text") -> list[bool]:
        vector = None if text else vector_of("text", space)
        queries = [SearchQuery([to.corpus_key], space, text, vector) for to in (other, theirs)]
        return [index.lists(query).other_model for query in queries]

    index.publish([version(["a text"]), version(["b text"], to=other), version([], to=theirs)])
    assert reported(first) == reported(first, None) == [False, False]
    assert reported(second) == reported(second, None) == [True, False]
    index.publish(
        [version(["b text"], 2, to=other, space=second), version(["c text"], 2, to=theirs, space=second)]
    )
    assert reported(second) == reported(second, None) == [True, False]
    assert reported(first) == [True, True]
    index.publish([version(["a text"], 2, space=second)])
    assert reported(second) == [False, False]
    assert reported(first) == [True, True]
    index.publish([version([], 3), version([], 3, to=other)])
    assert reported(first) == [False, True], "no vectors, no model"


@pytest.mark.shows("X2")
def test_a_text_has_the_vector_of_its_equal_in_another_document(index: VectorIndex) -> None:
    first = version(["alpha one", "beta two"])
    index.publish([first])
    other = version(["beta two", "alpha", "alpha one more"], to=target("https://a.example/other"))
    wanted = {key: (other.target, chunk) for key, chunk in zip(other.chunk_ids, other.chunks, strict=True)}

    found = index.copies(SPACE, wanted)
    assert found.keys() == {other.chunk_ids[0]}
    assert found[other.chunk_ids[0]] == pytest.approx(vector_of("beta two"), abs=1e-3)
    other.chunks[0].context = "Another heading"
    assert index.copies(SPACE, wanted) == {}
    assert index.copies(Space("other", 4), wanted) == {}
    assert index.copies(SPACE, {}) == {}


@pytest.mark.shows("X2")
def test_no_vector_is_copied_from_another_caller_or_corpus(index: VectorIndex) -> None:
    mine = target()
    index.publish([version(["alpha one"])])
    shared = mine.model_copy(update={"caller_id": "f" * 16, "document_id": "f" * 64})
    for to in (target(corpus="other"), target(caller="f" * 16), shared):
        asked = version(["alpha one"], to=to)
        assert index.copies(SPACE, {asked.chunk_ids[0]: (to, asked.chunks[0])}) == {}


@pytest.mark.shows("X2")
def test_a_text_that_is_gone_has_no_vector_to_copy(index: VectorIndex) -> None:
    index.publish([version(["alpha one"])])
    index.publish([version(["beta"], generation=2)])
    asked = version(["alpha one"], to=target("https://a.example/other"))
    assert index.copies(SPACE, {asked.chunk_ids[0]: (asked.target, asked.chunks[0])}) == {}
