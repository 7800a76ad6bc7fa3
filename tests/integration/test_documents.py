"""A caller lists the documents of a corpus and reads one with its chunks, over the routes and Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import psycopg
import pytest

from indexmill.contracts.content import PageFacts, chunk_ids
from indexmill.contracts.identity import CorpusIsolation
from indexmill.contracts.messages import Target
from indexmill.embedding.adapters.pgvector.catalogue import PostgresCatalogue
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.browse import DocumentFilter, behind
from indexmill.platform.postgres.database import Database
from tests.support.browsing import IN_ORDER, OTHER, Browsing, browsing_over, handler_of
from tests.support.index_builders import CALLER, target, version

pytestmark = [pytest.mark.integration, pytest.mark.shows("R266")]


@pytest.fixture
def browsing(database_url: str) -> Iterator[Browsing]:
    with browsing_over(database_url) as made:
        yield made


@pytest.mark.parametrize("limit", [1, 2, 3, 9, 50])
def test_pages_of_any_size_give_all_documents_once_in_the_order_of_their_urls(
    browsing: Browsing, limit: int
) -> None:
    assert browsing.urls(limit=limit) == IN_ORDER


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("https://a.example/a", ["a", "a/1", "a/2", "ab"]),
        ("https://a.example/a/", ["a/1", "a/2"]),
        ("https://a.example/upper/A", ["upper/A"]),
        ("https://a.example/Ä", ["Ä"]),
        ("https://a.example/%", []),
        ("https://b.example/", []),
    ],
)
def test_a_prefix_takes_the_urls_that_begin_so_and_no_pattern(
    browsing: Browsing, prefix: str, expected: list[str]
) -> None:
    assert browsing.urls(url_prefix=prefix, limit=1) == [f"https://a.example/{each}" for each in expected]


def test_a_list_has_stale_documents_alone_and_the_others_alone(browsing: Browsing) -> None:
    gone = {IN_ORDER[1], IN_ORDER[4]}
    browsing.change("UPDATE documents SET stale_since = now() WHERE url = ANY(%s)", list(gone))
    assert set(browsing.urls(stale="true", limit=1)) == gone
    assert set(browsing.urls(stale="false", limit=3)) == set(IN_ORDER) - gone
    assert browsing.urls(stale="true", url_prefix="https://b") == []
    _, page = browsing.get("default/documents", stale="true")
    assert all(each["stale"] and each["stale_since"] for each in page["documents"])


def test_only_what_search_sees_is_listed(browsing: Browsing) -> None:
    fenced, withdrawn = target("https://a.example/fenced"), target(IN_ORDER[0])
    browsing.change(
        "INSERT INTO documents (document_id, corpus_id, url) SELECT %s, id, %s FROM corpora",
        *(fenced.document_id, fenced.url),
    )
    browsing.index.publish([version([], 2, to=withdrawn)])
    assert browsing.urls() == IN_ORDER[1:]
    for one in (fenced, withdrawn):
        assert browsing.get(f"default/documents/{one.document_id}")[0] == 404
        assert browsing.get(f"default/documents/{one.document_id}/chunks")[0] == 404


def test_one_document_is_as_in_the_list(browsing: Browsing) -> None:
    _, page = browsing.get("default/documents")
    for each in page["documents"]:
        assert browsing.get(f"default/documents/{each['document_id']}") == (200, each)
    first = page["documents"][0]
    assert first["document_id"] == target(IN_ORDER[0]).document_id
    assert (first["title"], first["chunk_count"], first["generation"]) == ("Title 1", 2, 1)
    assert (first["model"], first["dimension"], first["stale"]) == ("tiny", 4, False)


def test_chunks_come_in_order_by_pages_of_one_version(browsing: Browsing) -> None:
    texts = [f"text {number}" for number in range(25)]
    made = version(texts, 2, to=target(IN_ORDER[0]))
    browsing.index.publish([made])
    path = f"default/documents/{made.target.document_id}/chunks"
    status, page = browsing.get(path, limit=10)
    found = page["chunks"]
    cursors = [page["next_cursor"]]
    while cursors[-1] is not None:
        _, page = browsing.get(path, limit=10, cursor=cursors[-1])
        found += page["chunks"]
        cursors.append(page["next_cursor"])
    assert (status, len(cursors), page["generation"]) == (200, 3, 2)
    assert [each["chunk_id"] for each in found] == chunk_ids(made.target.document_id, list(made.chunks))
    assert [
        (each["ordinal"], each["text"], each["context"], each["start"], each["end"]) for each in found
    ] == [(chunk.ordinal, chunk.text, chunk.context, chunk.start, chunk.end) for chunk in made.chunks]
    browsing.index.publish([version(texts[1:], 3, to=target(IN_ORDER[0]))])
    status, refused = browsing.get(path, limit=10, cursor=cursors[0])
    error = refused["error"]
    assert (status, error["code"], error["field"]) == (409, "invalid_transition", "query.cursor")
    assert browsing.get(path)[1]["generation"] == 3


@pytest.mark.shows("S1", "R172")
def test_a_caller_sees_documents_of_its_own_corpora_only(browsing: Browsing) -> None:
    theirs = target("https://a.example/theirs", caller=OTHER)
    browsing.index.publish([version(["gamma"], to=theirs), version(["mine"], to=target(corpus="second"))])
    mine = target(IN_ORDER[0]).document_id
    assert [each["url"] for each in browsing.get("default/documents", OTHER)[1]["documents"]] == [theirs.url]
    unknown = "0" * 64
    for corpus, document in (("default", theirs.document_id), ("second", mine), ("default", "x")):
        for rest in ("", "/chunks"):
            asked = browsing.get(f"{corpus}/documents/{document}{rest}")
            assert asked == browsing.get(f"{corpus}/documents/{unknown}{rest}")
            assert asked[0] == 404
            assert asked[1]["error"]["field"] == "path.document_id"
    foreign = browsing.get("second/documents", OTHER)
    assert foreign == browsing.get("never-made/documents", OTHER)
    assert (foreign[0], foreign[1]["error"]["field"]) == (404, "path.name")


@pytest.mark.shows("R172")
def test_a_shared_corpus_shows_every_caller_the_same_documents(browsing: Browsing) -> None:
    key = CorpusIsolation.SHARED.key(CALLER, "team")
    url = "https://a.example/shared"
    own = target(url)
    made = Target(**{**own.model_dump(), "corpus_name": "team", "corpus_key": key})
    browsing.index.publish([version(["alpha"], to=made.model_copy(update={"document_id": "a" * 64}))])
    database = Database(browsing.url)
    shared = Browsing(browsing.url, browsing.index, handler_of(database, CorpusIsolation.SHARED))
    assert shared.get("team/documents", CALLER) == shared.get("team/documents", OTHER)
    assert shared.get(f"team/documents/{'a' * 64}", OTHER)[1]["url"] == url
    # In the other mode the same name is another corpus.
    assert browsing.get("team/documents")[0] == 404
    database.close()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 0}, "query.limit"),
        ({"limit": 201}, "query.limit"),
        ({"limit": "5_0"}, "query.limit"),
        ({"cursor": "x"}, "query.cursor"),
        ({"cursor": "WyJodHRwczovL2EuZXhhbXBsZS8iLCAidGV4dCJd"}, "query.cursor"),
        ({"cursor": "WzEsIDJd"}, "query.cursor"),
        ({"cursor": "WyJhXHUwMDAwYiIsIDFd"}, "query.cursor"),
        ({"cursor": "WyJhIiwgOTk5OTk5OTk5OTk5OTk5OTk5OTk5OTldCg=="}, "query.cursor"),
        ({"url_prefix": ""}, "query.url_prefix"),
        ({"url_prefix": "x" * 2_049}, "query.url_prefix"),
        ({"stale": "yes"}, "query.stale"),
        ({"unknown": "1"}, "query.unknown"),
    ],
)
def test_a_wrong_parameter_is_named(browsing: Browsing, query: dict[str, str | int], field: str) -> None:
    status, answer = browsing.get("default/documents", **query)
    assert (status, answer["error"]["field"]) == (422, field)
    status, answer = browsing.get("Not_A_Name/documents")
    assert (status, answer["error"]["code"]) == (422, "corpus_name_invalid")


def test_documents_are_filtered_by_their_type_and_show_their_facts(browsing: Browsing) -> None:
    page = PageFacts(content_type="application/pdf", language="de")
    made = replace(version(["gamma"], 2, to=target(IN_ORDER[3])), page=page, metadata={"team": "a"})
    browsing.index.publish([made])
    assert browsing.urls(content_type="application/pdf") == [IN_ORDER[3]]
    assert browsing.urls(content_type="application/pdf", stale="false") == [IN_ORDER[3]]
    assert browsing.urls(content_type="application/pdf", stale="true") == []
    assert browsing.urls(content_type="text/x-none") == []
    shown = browsing.get(f"default/documents/{made.target.document_id}")[1]
    facts = {name: shown[name] for name in ("content_type", "language", "metadata")}
    assert facts == {"content_type": "application/pdf", "language": "de", "metadata": {"team": "a"}}


def test_publishing_a_new_document_changes_no_index_again(database_url: str) -> None:
    """Its row has what indexes are of from the start: the update that makes it visible is heap-only (HOT)."""
    page = PageFacts(content_type="application/pdf")
    with closing(Database(database_url)) as database:
        made = [replace(version(["alpha"], to=target(url)), page=page) for url in IN_ORDER]
        before = _updates(database)
        PgVectorIndex(database).publish(made)
        after = _updates(database)
    assert [late - early for early, late in zip(before, after, strict=True)] == [len(IN_ORDER)] * 2


def _updates(database: Database) -> tuple[int, ...]:
    """Return how many rows were updated so far, and how many of them heap-only."""
    database.connection().execute("SELECT pg_stat_force_next_flush()")
    counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'documents'"
    return database.connection().execute(counts).fetchall()[0]


class _Session:
    """A database whose statements are all of one session, which counts the rows that they read."""

    def __init__(self, session: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._session = session

    def read(self, work: Callable[[psycopg.Connection[tuple[Any, ...]]], Any]) -> Any:
        return work(self._session)


READ = """
SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'documents'
"""
MANY = """
INSERT INTO documents (document_id, corpus_id, url, published, chunk_count, stale_since, content_type)
SELECT md5(n::text), corpus_id, 'https://m.example/' || lpad(n::text, 5, '0'), 1, 1,
    CASE WHEN n %% 10 = 0 THEN now() END, CASE WHEN n %% 10 = 1 THEN 'application/pdf' ELSE 'text/html' END
FROM generate_series(1, %s) AS n, (SELECT DISTINCT corpus_id FROM documents) AS one
"""
PAGES = {
    "beginning": DocumentFilter(51),
    "middle": DocumentFilter(51, after=("https://m.example/01999", 0)),
    "prefix": DocumentFilter(51, after=("https://m.example/02", -1), below=behind("https://m.example/02")),
    "stale": DocumentFilter(51, True, after=("https://m.example/01999", 0)),
    "of a type": DocumentFilter(51, content_type="application/pdf"),
}


@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
def test_a_page_reads_its_own_rows_with_statistics_and_without(browsing: Browsing, *, analyzed: bool) -> None:
    browsing.change("ALTER TABLE documents SET (autovacuum_enabled = off)")
    browsing.change(MANY, 4_000)
    if analyzed:
        browsing.change("ANALYZE documents")
    for page in PAGES.values():
        with psycopg.connect(browsing.url, prepare_threshold=None) as session:
            (corpus,) = session.execute("SELECT id FROM corpora").fetchall()[0]
            before = session.execute(READ).fetchall()
            read = PostgresCatalogue(cast("Database", _Session(session))).documents(corpus, page)
            ((count,),) = session.execute(READ).fetchall()
        assert len(read) == 51
        assert count - (before[0][0] if before else 0) <= 60
