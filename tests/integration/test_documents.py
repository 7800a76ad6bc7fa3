"""A caller lists the documents of a corpus and reads one with its chunks, over the routes and Postgres."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import psycopg
import pytest

from indexmill.chunking.split import split
from indexmill.contracts.content import ChunkSettings, PageFacts, SourceText, chunk_ids
from indexmill.contracts.identity import CorpusIsolation
from indexmill.contracts.messages import Target
from indexmill.embedding.adapters.pgvector.catalogue import PostgresCatalogue
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.api import document_routes
from indexmill.embedding.browse import BrowseCorpus, DocumentFilter, behind
from indexmill.embedding.ports import DocumentVersion
from indexmill.platform.http.app import Handler, create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.database import Database
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.index_builders import CALLER, target, vector_of, version
from tests.twins.tokenizer import WordTokenizer

pytestmark = [pytest.mark.integration, pytest.mark.shows("R266")]

OTHER = "fedcba9876543210"
URLS = [f"https://a.example/{name}" for name in ("b", "a", "a/1", "a/2", "Ä", "ab", "upper/A", "upper/a")]
IN_ORDER = sorted([*URLS, "upload:report.pdf"])


@dataclass
class Browsing:
    """The routes over an index."""

    url: str
    index: PgVectorIndex
    handler: Handler

    def get(self, path: str, caller: str = CALLER, **query: str | int) -> tuple[int, dict[str, Any]]:
        """Return status and body of the answer to a caller."""
        text = {name: str(value) for name, value in query.items()}
        event = api_event(
            "GET", f"/embedding/corpora/{path}", query=text or None, caller=caller_claims(caller)
        )
        answer = self.handler(event, FakeContext())
        return answer["statusCode"], json.loads(answer["body"])

    def urls(self, **query: str | int) -> list[str]:
        """Return the URLs of all pages of the list."""
        found: list[str] = []
        while True:
            status, page = self.get("default/documents", **query)
            assert status == 200, page
            assert page["count"] == len(page["documents"]) <= int(query.get("limit", 50))
            found += [each["url"] for each in page["documents"]]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def change(self, statement: str, *values: object) -> None:
        """Change rows beside the service."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), values)


def handler_of(database: Database, isolation: CorpusIsolation) -> Handler:
    observability = Observability("test", level="CRITICAL")
    browse = BrowseCorpus(PostgresCatalogue(database), isolation)
    return lambda_handler(create_app([document_routes(browse)], observability), observability)


@pytest.fixture
def browsing(database_url: str) -> Iterator[Browsing]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    database = Database(database_url)
    index = PgVectorIndex(database)
    index.publish([version(["alpha", "beta"], to=target(url)) for url in IN_ORDER])
    yield Browsing(database_url, index, handler_of(database, CorpusIsolation.CALLER))
    database.close()
    asyncio.set_event_loop(None)
    loop.close()


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


TEXT = "# Owls\n\nOwls hunt at night.\n\n## Bats 🦇\n\nBäts sleep by day.  \n\n\n" + "Words. " * 300


def split_version(
    text: str, generation: int = 1, *, keeps: bool = True, to: Target | None = None
) -> DocumentVersion:
    """Return the version that the chunker and the worker make of a text."""
    chunks = split(text, "Animals", ChunkSettings(max_tokens=64, overlap_tokens=16), WordTokenizer())
    made = version([chunk.text for chunk in chunks], generation, to=to)
    ids = chunk_ids(made.target.document_id, chunks)
    vectors = {chunk_id: vector_of(chunk_id) for chunk_id in ids}
    source = SourceText.of(text, chunks) if keeps else None
    return replace(made, chunks=chunks, chunk_ids=ids, vectors=vectors, source=source)


Read = Callable[..., tuple[int, dict[str, str], str]]


@pytest.fixture
def read(browsing: Browsing) -> Read:
    """Return a function that reads the content of the first document: status, headers, body."""

    def content(**query: int | str) -> tuple[int, dict[str, str], str]:
        path = f"/embedding/corpora/default/documents/{target(IN_ORDER[0]).document_id}/content"
        text = {name: str(value) for name, value in query.items()} or None
        answer = browsing.handler(
            api_event("GET", path, query=text, caller=caller_claims(CALLER)), FakeContext()
        )
        return answer["statusCode"], answer["headers"], answer["body"]

    return content


def test_the_content_is_the_text_that_the_chunks_were_cut_from(browsing: Browsing, read: Read) -> None:
    made = split_version(TEXT, 2, to=target(IN_ORDER[0]))
    browsing.index.publish([made])
    status, headers, text = read()
    assert (status, text) == (200, TEXT)
    assert headers["content-type"] == "text/markdown; charset=utf-8"
    assert headers["x-text-length"] == str(len(TEXT))
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-disposition"].startswith("attachment")
    _, page = browsing.get(f"default/documents/{made.target.document_id}/chunks", limit=200)
    assert len(page["chunks"]) > 5
    for chunk in page["chunks"]:
        assert text[chunk["start"] : chunk["end"]] == chunk["text"]
        assert read(start=chunk["start"], end=chunk["end"])[2] == chunk["text"]
    assert browsing.get(f"default/documents/{made.target.document_id}")[1]["text_length"] == len(TEXT)


def test_a_part_of_the_content_is_counted_in_characters(browsing: Browsing, read: Read) -> None:
    browsing.index.publish([split_version(TEXT, 2, to=target(IN_ORDER[0]))])
    parts = [read(start=at, end=at + 97) for at in range(0, len(TEXT), 97)]
    assert "".join(text for _, _, text in parts) == TEXT
    assert read(start=len(TEXT))[::2] == (200, "")
    assert read(start=3, end=3)[::2] == (200, "")
    assert read(end=10**8)[2] == TEXT
    for query, field in (
        ({"start": len(TEXT) + 1}, "query.start"),
        ({"start": 4, "end": 3}, "query.end"),
        ({"start": -1}, "query.start"),
        ({"end": "1_0"}, "query.end"),
    ):
        status, _, body = read(**query)
        assert (status, json.loads(body)["error"]["field"]) == (422, field)


def test_a_text_that_is_not_kept_is_never_another_ones(browsing: Browsing, read: Read) -> None:
    """A worker of the release before publishes chunks alone and leaves the columns of an earlier version."""
    first = target(IN_ORDER[0])
    browsing.index.publish([split_version(TEXT, 2, to=first)])
    browsing.change("UPDATE documents SET published = 3 WHERE document_id = %s", first.document_id)
    browsing.change("UPDATE memberships SET generation = 3 WHERE generation = 2")
    expired = read()
    assert (expired[0], json.loads(expired[2])["error"]["code"]) == (410, "content_expired")
    assert browsing.get(f"default/documents/{first.document_id}")[1]["text_length"] is None
    browsing.index.publish([split_version(TEXT, 4, keeps=False, to=first)])
    assert read()[0] == 410
    browsing.index.publish([split_version(TEXT, 5, to=first)])
    assert read()[::2] == (200, TEXT)
    # Rows that do not fit each other are no text either.
    browsing.change("UPDATE chunks SET text = reverse(text) WHERE text LIKE '%%Owls%%'")
    assert read()[0] == 410


def test_a_text_that_no_answer_holds_is_read_by_parts(browsing: Browsing, read: Read) -> None:
    # A line end is two bytes of the JSON that Lambda counts.
    text = "Wörter." + "\n" * 3_200_000
    made = version(["Wörter."], 2, to=target(IN_ORDER[0]))
    browsing.index.publish([replace(made, source=SourceText.of(text, made.chunks))])
    status, _, body = read()
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (413, "response_too_large")
    assert "start and end" in error["hint"]
    parts = [read(start=at, end=at + 1_000_000) for at in range(0, len(text), 1_000_000)]
    assert {part[0] for part in parts} == {200}
    assert "".join(part[2] for part in parts) == text


def test_a_chunk_names_its_page_of_a_pdf(browsing: Browsing) -> None:
    made = split_version(TEXT, 2, to=target(IN_ORDER[0]))
    starts = [0, 0, TEXT.index("## Bats"), len(TEXT) - 200]
    browsing.index.publish([replace(made, page=PageFacts(page_starts=starts))])
    path = f"default/documents/{made.target.document_id}/chunks"
    chunks = browsing.get(path, limit=200)[1]["chunks"]
    assert [each["page"] for each in chunks] == [
        sum(start <= each["start"] for start in starts) for each in chunks
    ]
    assert {2, 3, 4} <= {each["page"] for each in chunks}
    hits = browsing.index.hits([made.target.corpus_key], made.chunk_ids)
    assert {hit.chunk_id: hit.page for hit in hits.values()} == {
        each["chunk_id"]: each["page"] for each in chunks
    }
    browsing.index.publish([split_version(TEXT, 3, to=target(IN_ORDER[0]))])
    assert {each["page"] for each in browsing.get(path)[1]["chunks"]} == {None}


def test_documents_are_filtered_by_their_type_and_show_their_facts(browsing: Browsing) -> None:
    page = PageFacts(content_type="application/pdf", language="de")
    made = replace(version(["gamma"], 2, to=target(IN_ORDER[3])), page=page, metadata={"team": "a"})
    browsing.index.publish([made])
    assert browsing.urls(content_type="application/pdf") == [IN_ORDER[3]]
    assert browsing.urls(content_type="text/x-none") == []
    shown = browsing.get(f"default/documents/{made.target.document_id}")[1]
    facts = {name: shown[name] for name in ("content_type", "language", "metadata")}
    assert facts == {"content_type": "application/pdf", "language": "de", "metadata": {"team": "a"}}


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
INSERT INTO documents (document_id, corpus_id, url, published, chunk_count, stale_since)
SELECT md5(n::text), corpus_id, 'https://m.example/' || lpad(n::text, 5, '0'), 1, 1,
    CASE WHEN n %% 10 = 0 THEN now() END
FROM generate_series(1, %s) AS n, (SELECT DISTINCT corpus_id FROM documents) AS one
"""
PAGES = {
    "beginning": DocumentFilter(51),
    "middle": DocumentFilter(51, after=("https://m.example/01999", 0)),
    "prefix": DocumentFilter(51, after=("https://m.example/02", -1), below=behind("https://m.example/02")),
    "stale": DocumentFilter(51, True, after=("https://m.example/01999", 0)),
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
