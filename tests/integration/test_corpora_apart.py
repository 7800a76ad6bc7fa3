"""A corpus tells nothing of another: what its searches find does not move while another one grows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.rows import class_row

from indexmill.embedding.adapters.pgvector import search
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.ports import Lists, SearchQuery, Space
from indexmill.platform.postgres.database import Database
from sql.build_index import build_due
from tests.support.index_builders import SPACE, target, vector_of, version

pytestmark = [pytest.mark.integration, pytest.mark.shows("R172")]

WORDS = [f"term{number}" for number in range(25)]
A, B = target(corpus="a"), target("https://b.example/", "b", caller="f" * 16)
QUESTIONS = ["term1 term2", "term3 term4 term5 term3", " ".join(WORDS)]
B_CHUNKS = 10_000
DIMENSION = 64
LARGE = search.EXACT_LIMIT + 2_000
Vectors = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture
def index(database_url: str) -> Iterator[PgVectorIndex]:
    with closing(Database(database_url)) as database:
        yield PgVectorIndex(database)


def figures(
    connection: psycopg.Connection[Any], index: PgVectorIndex
) -> tuple[tuple[Any, ...], dict[int, int], list[Lists]]:
    """Return what A's rankings are made of: its totals, the frequencies of terms, and all raw scores."""
    values = {"model": SPACE.model, "dimension": SPACE.dimension, **search.named_values([A.corpus_key])}
    with connection.cursor(row_factory=class_row(search.CorpusTotals)) as cursor:
        rows = cursor.execute(search.SQL["corpus_totals"], values).fetchall()
    terms = count_terms(" ".join(WORDS))
    frequencies = dict(sorted(search.frequencies(connection, rows, terms).items()))
    lists = [index.lists(SearchQuery([A.corpus_key], SPACE, text, vector_of(text))) for text in QUESTIONS]
    assert all(len(one.keyword) == len(one.vector) == 200 for one in lists)
    (totals,) = rows
    sizes = (totals.corpus, totals.chunks, totals.words, totals.first_row, totals.last_row)
    return sizes, frequencies, lists


def test_scores_are_equal_to_the_digit_after_another_corpus_grew(
    database_url: str, index: PgVectorIndex
) -> None:
    """Of keywords and of vectors, while another caller indexes 10,000 chunks of the same words."""
    draw = random.Random(4)

    def texts(count: int) -> list[str]:
        return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(count)]

    # Many documents of both, one after the other: their chunks' rows are mixed.
    for number in range(25):
        index.publish([version(texts(100), to=target(f"https://a.example/{number}", "a"))])
        index.publish([version(texts(3), to=target(f"https://b.example/s{number}", "b", B.caller_id))])
    with psycopg.connect(database_url, autocommit=True) as connection:
        before = figures(connection, index)
        counted = "SELECT term, count(*) FROM postings WHERE corpus = 1 GROUP BY term"
        assert before[1] != dict(connection.execute(counted).fetchall()), "some are estimated"
        for number in range(10):
            to = target(f"https://b.example/{number}", "b", B.caller_id)
            index.publish([version(texts(B_CHUNKS // 10), to=to)])
        connection.execute("ANALYZE")
        assert figures(connection, index) == before


def test_an_approximate_search_finds_as_much_after_another_corpus_grew(
    database_url: str, index: PgVectorIndex
) -> None:
    """Above the exact limit an index of all corpora is asked: recall@10 is at least .98 before and after."""
    draw = np.random.default_rng(6)
    centres = draw.normal(size=(60, DIMENSION))
    space = Space("wide", DIMENSION)

    def made(count: int) -> Vectors:
        raw = centres[draw.integers(0, len(centres), count)] + draw.normal(size=(count, DIMENSION))
        return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)

    own, questions = made(LARGE), made(60)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for to in (A, B):
            index.publish([version([], to=to, space=space)])
        _copy(connection, 1, 0, own)
        exact = own @ questions.T
        wanted = [set(np.argsort(-exact[:, at])[:10].tolist()) for at in range(len(questions))]

        def recall() -> float:
            found = []
            for question, best in zip(questions, wanted, strict=True):
                lists = index.lists(SearchQuery([A.corpus_key], space, None, question.tolist()))
                found.append(len(best & {_number(each.chunk_id) for each in lists.vector[:10]}))
            return sum(found) / (10 * len(found))

        assert build_due(database_url) == [1]
        before = recall()
        _copy(connection, 2, LARGE, made(B_CHUNKS))
        after = recall()
        used = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'vectors_space_1'"
        connection.execute("SELECT pg_stat_force_next_flush()")
        assert connection.execute(used).fetchall() != [(0,)], "the index was asked"
    assert min(before, after) >= 0.98, (before, after)


def _copy(connection: psycopg.Connection[Any], corpus: int, first: int, vectors: Vectors) -> None:
    """Write chunks that have nothing but a vector, as rows: the index itself is what is measured."""
    with connection.cursor() as cursor:
        with cursor.copy("COPY chunks FROM STDIN") as rows:
            for at in range(first, first + len(vectors)):
                rows.write_row((at, corpus, corpus, 1, 1, 1, 1, at.to_bytes(32, "big"), "en", "", ""))
        with cursor.copy("COPY vectors FROM STDIN") as rows:
            for at, vector in enumerate(vectors, first):
                rows.write_row((corpus, 1, at, str(vector.tolist())))
        cursor.execute(
            "INSERT INTO corpus_totals VALUES (%s, 0, %s, %s, %s, %s)",
            (corpus, len(vectors), len(vectors), first, first + len(vectors) - 1),
        )


def _number(chunk_id: str) -> int:
    return int(chunk_id, 16)
