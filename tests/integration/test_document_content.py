"""A caller reads the text of a document, which its chunks are parts of, over the routes and Postgres."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from indexmill.chunking.worker import split
from indexmill.contracts.content import ChunkSettings, PageFacts, SourceText, chunk_ids
from indexmill.contracts.messages import Target
from indexmill.embedding.ports import DocumentVersion
from tests.support.browsing import IN_ORDER, Browsing, browsing_over
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.index_builders import CALLER, target, vector_of, version
from tests.twins.tokenizer import WordTokenizer

pytestmark = [pytest.mark.integration, pytest.mark.shows("R266")]


@pytest.fixture
def browsing(database_url: str) -> Iterator[Browsing]:
    with browsing_over(database_url) as made:
        yield made


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


def test_long_chunks_come_by_fewer_in_a_page(browsing: Browsing) -> None:
    """A caller's own may have 32,000 characters, and no answer more than 6 MB."""
    made = version([f"{number} " + "日" * 30_000 for number in range(30)], 2, to=target(IN_ORDER[0]))
    browsing.index.publish([made])
    path, found, cursors = f"default/documents/{made.target.document_id}/chunks", [], [""]
    while cursors[-1] is not None:
        query = {"cursor": cursors[-1]} if cursors[-1] else {}
        status, page = browsing.get(path, limit=200, **query)
        assert (status, page["count"]) == (200, len(page["chunks"]))
        assert 0 < page["count"] < 30
        found += page["chunks"]
        cursors.append(page["next_cursor"])
    assert [each["ordinal"] for each in found] == [*range(30)]
