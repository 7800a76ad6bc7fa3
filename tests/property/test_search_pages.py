"""Pages of a corpus that does not change are parts of one order, whatever their sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexmill.contracts.http_search import REACHABLE, Mode, SearchRequest
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.search import SearchCorpus
from indexmill.platform.postgres.database import Database
from tests.support.index_builders import CALLER, target, version
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder

WORDS = [f"term{number}" for number in range(12)]
DOCUMENTS = 60


@pytest.fixture
def search(database_url: str) -> Iterator[SearchCorpus]:
    """Yield a search of 360 chunks of three words each, so that many have equal scores."""
    draw, embedder, database = random.Random(2), HashEmbedder(), Database(database_url)
    index = PgVectorIndex(database)
    versions = []
    for number in range(DOCUMENTS):
        texts = [" ".join(draw.choices(WORDS, k=3)) for _ in range(6)]
        made = version(texts, to=target(f"https://a.example/{number}"), space=embedder.space)
        made.vectors.update(zip(made.chunk_ids, embedder.embed(texts, timeout_s=1), strict=True))
        versions.append(made)
    index.publish(versions)
    yield SearchCorpus(index, embedder, FrozenClock())
    database.close()


@pytest.mark.shows("P064")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mode=st.sampled_from(Mode),
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    one_per_document=st.booleans(),
    cuts=st.sets(st.integers(1, REACHABLE - 1), max_size=6),
)
def test_pages_of_any_size_make_up_one_order(
    search: SearchCorpus, mode: Mode, words: list[str], one_per_document: bool, cuts: set[int]
) -> None:
    def page(offset: int, top_k: int) -> list[tuple[str, str, float]]:
        asked = SearchRequest(
            query=" ".join(words), mode=mode, top_k=top_k, offset=offset, one_per_document=one_per_document
        )
        return [(hit.chunk_id, hit.document_id, hit.score) for hit in search(CALLER, asked).results]

    whole = page(0, 100) + page(100, 100)
    edges = sorted({0, 100, *cuts, REACHABLE})
    assert [hit for start, end in pairwise(edges) for hit in page(start, end - start)] == whole
    assert len({chunk_id for chunk_id, _, _ in whole}) == len(whole) > 0
    assert not one_per_document or len({document for _, document, _ in whole}) == len(whole)
    # Below 0 a cosine counts as almost 0, and the order is that of the cosines.
    told_apart = [hit for hit in whole if hit[2] > 1e-6]
    assert told_apart == sorted(told_apart, key=lambda hit: (-hit[2], hit[0]))
