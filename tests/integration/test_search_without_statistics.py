"""Search reads the same few rows with statistics and without any, as right after indexing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from indexmill.contracts.http_search import SearchFilter
from indexmill.embedding.adapters.pgvector import search
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.adapters.pgvector.statements import MOST_TIED
from indexmill.embedding.ports import POOL, DocumentVersion, Hit, SearchQuery
from indexmill.platform.postgres.database import Database
from sql.build_index import build_due
from tests.support.index_builders import SPACE, target, vector_of, version

pytestmark = pytest.mark.integration

DOCUMENTS = 150
CHUNKS = 10 * DOCUMENTS
TOP_K = 10
TABLES = ["documents", "chunks", "memberships", "vectors", "postings"]
READ = """
SELECT relname, coalesce(idx_tup_fetch, 0) + seq_tup_read
FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)
"""
VOCABULARY = [f"w{number}" for number in range(400)]
RARE = [f"rare{number}" for number in range(200)]
Measure = Callable[..., tuple[dict[str, Hit], dict[str, int]]]


@pytest.fixture(params=["fresh", "analyzed"])
def session(request: pytest.FixtureRequest, database_url: str) -> Iterator[psycopg.Connection]:
    """Yield a session on a corpus of 1,500 chunks, with statistics or without any."""
    draw = random.Random(5)
    with psycopg.connect(database_url, autocommit=True) as own:
        for table in TABLES:
            own.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        with closing(Database(database_url)) as database:
            PgVectorIndex(database).publish([_document(draw, number) for number in range(DOCUMENTS)])
        if request.param == "analyzed":
            own.execute("ANALYZE")
        known = own.execute("SELECT DISTINCT tablename FROM pg_stats WHERE tablename = ANY(%s)", (TABLES,))
        assert len(known.fetchall()) == (len(TABLES) if request.param == "analyzed" else 0)
    with psycopg.connect(database_url, prepare_threshold=None) as session:
        yield session


def _document(draw: random.Random, number: int) -> DocumentVersion:
    """Return ten chunks of common words; those of the first two documents have the rare ones too."""
    texts = []
    for at in range(10):
        words = draw.sample(VOCABULARY, 30)
        if number < 2:
            words += RARE[10 * number + at :: 20]
        texts.append(" ".join(words))
    made = version(texts, to=target(f"https://a.example/{number}"))
    return replace(made, metadata={"number": str(number), "half": str(number % 2)})


@pytest.fixture
def measure(session: psycopg.Connection) -> Measure:
    """Return a function that searches and tells the hits and the rows read, by table."""

    def run(
        text: str | None, vector: list[float] | None, **metadata: str
    ) -> tuple[dict[str, Hit], dict[str, int]]:
        wanted = SearchFilter(metadata=metadata) if metadata else None
        with session.transaction(force_rollback=True):
            before = Counter(dict(session.execute(READ, (TABLES,)).fetchall()))
            corpora = [target().corpus_key]
            lists = search.lists(session, SearchQuery(corpora, SPACE, text, vector, wanted))
            listed = [each.chunk_id for each in (*lists.keyword, *lists.vector)]
            hits = search.hits(session, corpora, listed[:TOP_K] if wanted is None else listed)
            after = Counter(dict(session.execute(READ, (TABLES,)).fetchall()))
            return hits, dict(after - before)

    return run


def test_only_the_rows_of_candidates_and_hits_are_read(measure: Measure) -> None:
    hits, read = measure("w1 w2 w3", None)
    assert len(hits) == TOP_K
    assert max(read[table] for table in ("documents", "memberships")) <= TOP_K, read
    assert read["chunks"] <= MOST_TIED + TOP_K, read


def test_a_long_question_reads_no_other_words(measure: Measure) -> None:
    hits, read = measure(" ".join(RARE), None)
    assert len(hits) == TOP_K
    assert 0 < read["postings"] < 10 * len(RARE), read


def test_the_approximate_index_spares_most_vectors(
    session: psycopg.Connection, measure: Measure, database_url: str
) -> None:
    session.execute("UPDATE corpus_totals SET chunks = %s", (search.EXACT_LIMIT,))
    session.commit()
    assert build_due(database_url) == [1]
    hits, read = measure(None, vector_of("anything"))
    assert len(hits) == TOP_K
    assert read["vectors"] < CHUNKS / 2, read


@pytest.mark.shows("P063")
def test_a_filter_reads_each_document_once_and_the_chunks_of_those_that_match(measure: Measure) -> None:
    hits, read = measure("w1 w2 w3", vector_of("anything"), number="7")
    assert {hit.source_url for hit in hits.values()} == {"https://a.example/7"}
    assert len(hits) == 10
    assert read["documents"] <= DOCUMENTS + len(hits), read
    assert read["memberships"] <= 2 * len(hits), read
    assert read["vectors"] <= len(hits), read


@pytest.mark.shows("P063")
@pytest.mark.parametrize("exact", [True, False])
def test_a_filter_holds_where_the_approximate_index_is_used(
    session: psycopg.Connection,
    measure: Measure,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    exact: bool,
) -> None:
    session.execute("UPDATE corpus_totals SET chunks = %s", (search.EXACT_LIMIT,))
    session.commit()
    assert build_due(database_url) == [1]
    # Half of the chunks match: as few as this are compared one by one, unless that is more than the limit.
    monkeypatch.setattr(search, "EXACT_LIMIT", CHUNKS if exact else CHUNKS // 4)
    session.execute("UPDATE corpus_totals SET chunks = %s", (CHUNKS,))
    session.commit()
    hits, read = measure(None, vector_of("anything"), half="1")
    assert len(hits) == POOL
    assert all(hit.metadata is not None and hit.metadata["half"] == "1" for hit in hits.values())
    assert read["vectors"] <= CHUNKS // 2 if exact else read["vectors"] < CHUNKS, read
