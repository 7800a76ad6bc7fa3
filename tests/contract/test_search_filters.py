"""Filters of a search, and what it says of documents: one suite over the twin and Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.contracts.content import PageFacts
from indexmill.contracts.http_search import SearchFilter, SearchRequest
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import POOL, SearchQuery, VectorIndex
from indexmill.platform.postgres.database import Database
from tests.support.index_builders import SPACE, target, vector_of, version
from tests.twins.vector_index import InMemoryVectorIndex

pytestmark = pytest.mark.shows("P063")

KEY = target().corpus_key
DAY = datetime(2026, 3, 14, tzinfo=UTC)
DOCUMENTS: Mapping[str, tuple[PageFacts, dict[str, str] | None]] = {
    "https://a.example/docs/one": (
        PageFacts(content_type="text/html", language="en-GB", published_at=DAY),
        {"team": "harbour", "due": "2026-03-14", "a.b": "1"},
    ),
    "https://a.example/docs/two": (
        PageFacts(
            content_type="application/pdf", language="EN", fetched_at=datetime(2026, 3, 15, tzinfo=UTC)
        ),
        {"team": "quay", "due": "2026-03-14T23:30:00-02:00", 'näme "x" \'; --': "ß$1 {}"},
    ),
    "https://a.example/doc_": (
        PageFacts(content_type="text/html", language="eng"),
        {"due": "2026-02-30", "team": "harbour'; DROP TABLE documents; --", "a": '{"b": "1"}'},
    ),
    "https://b.example/docs/one": (PageFacts(language="de"), {"due": "tomorrow", "team": "Harbour"}),
    "upload:docs/one": (PageFacts(), None),
    "https://c.example/": (PageFacts(content_type="text/html"), {"due": "2026-03-14 09:30", "team": ""}),
}


@pytest.fixture(params=["twin", "postgres"])
def index(request: pytest.FixtureRequest) -> Iterator[VectorIndex]:
    if request.param == "twin":
        yield InMemoryVectorIndex()
        return
    database = Database(request.getfixturevalue("database_url"))
    yield PgVectorIndex(database)
    database.close()


def fill(index: VectorIndex) -> None:
    versions = [
        replace(
            version([f"boat {at} words", f"boat {at} more"], to=target(url)), page=page, metadata=metadata
        )
        for at, (url, (page, metadata)) in enumerate(DOCUMENTS.items())
    ]
    index.publish(versions)


def found(index: VectorIndex, **conditions: Any) -> set[str]:
    """Return the documents that both lists have; they agree."""
    wanted = SearchFilter.model_validate(conditions)
    lists = index.lists(SearchQuery([KEY], SPACE, "boat", vector_of("boat"), wanted))
    both = [{each.chunk_id for each in found} for found in (lists.keyword, lists.vector)]
    assert both[0] == both[1]
    hits = index.hits([KEY], sorted(both[0]))
    urls = [hit.source_url for hit in hits.values()]
    # Both chunks of each.
    assert all(urls.count(url) == 2 for url in urls)
    return {url.removeprefix("https://") for url in urls}


ONE, TWO, DOC, OTHER, GIVEN, ROOT = (url.removeprefix("https://") for url in DOCUMENTS)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"url_prefix": "https://a.example/docs/"}, {ONE, TWO}),
        ({"url_prefix": "https://a.example/doc_"}, {DOC}),
        ({"url_prefix": "https://a.example/doc%"}, set()),
        ({"url_prefix": "upload:docs/"}, {GIVEN}),
        ({"url_prefix": "HTTPS://a.example/"}, set()),
        ({"language": "en"}, {ONE, TWO}),
        ({"language": "en-gb"}, {ONE}),
        ({"language": "e"}, set()),
        ({"content_type": "text/html"}, {ONE, DOC, ROOT}),
        ({"content_type": "Application/PDF"}, {TWO}),
        ({"published_at": {"since": "2026-03-14"}}, {ONE}),
        ({"published_at": {"since": "2026-03-14T00:00:01Z"}}, set()),
        ({"published_at": {"before": "2026-03-14"}}, set()),
        ({"published_at": {"since": "2026-03-13", "before": "2026-03-14T01:00:00+00:30"}}, {ONE}),
        ({"fetched_at": {"before": "2026-04-01"}}, {TWO}),
        ({"indexed_at": {"since": "2020-01-01"}}, {ONE, TWO, DOC, OTHER, GIVEN, ROOT}),
        ({"indexed_at": {"before": "2020-01-01"}}, set()),
        ({"metadata": {"team": "harbour"}}, {ONE}),
        ({"metadata": {"team": "harbour", "due": "2026-03-14"}}, {ONE}),
        ({"metadata": {"team": "quay", "due": "2026-03-14"}}, set()),
        ({"metadata": {"team": ""}}, {ROOT}),
        ({"metadata": {"a.b": "1"}}, {ONE}),
        ({"metadata": {"a": "1"}}, set()),
        ({"metadata": {'näme "x" \'; --': "ß$1 {}"}}, {TWO}),
        ({"metadata": {"team": "harbour'; DROP TABLE documents; --"}}, {DOC}),
        ({"metadata": {"team": "' OR ''='"}}, set()),
        ({"metadata_dates": {"due": {"since": "2026-03-14", "before": "2026-03-15"}}}, {ONE, ROOT}),
        ({"metadata_dates": {"due": {"since": "2026-03-15T01:30:00Z"}}}, {TWO}),
        ({"metadata_dates": {"due": {"before": "9999-12-31"}}}, {ONE, TWO, ROOT}),
        ({"metadata_dates": {"none": {"since": "0001-01-01"}}}, set()),
        (
            {"metadata_dates": {"due": {"since": "2026-03-15T00+23:59", "before": "9999-12-31T23:59-23:59"}}},
            {TWO, ROOT},
        ),
        ({"metadata_dates": {"due": {"before": "2026-03-14T15:59:59+15:59:59.5"}}}, set()),
        ({"published_at": {"since": "0001-01-01T00:00+14:00", "before": "9999-12-31T23:59-14:00"}}, {ONE}),
        ({"metadata_dates": {"due": {"since": "2026-01-01"}, "team": {"since": "2026-01-01"}}}, set()),
        ({"language": "en", "metadata": {"team": "quay"}}, {TWO}),
    ],
    # Sets have no order: workers of one run must name the cases alike.
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_both_lists_have_the_documents_that_match_and_no_other(
    index: VectorIndex, conditions: dict[str, Any], expected: set[str]
) -> None:
    fill(index)
    assert found(index, **conditions) == expected


def test_a_filter_changes_no_score(index: VectorIndex) -> None:
    fill(index)
    query = SearchQuery([KEY], SPACE, "boat 1 words", vector_of("boat"))
    whole = index.lists(query)
    part = index.lists(replace(query, filter=SearchFilter(metadata={"team": "quay"})))
    for before, after in ((whole.keyword, part.keyword), (whole.vector, part.vector)):
        assert len(after) == 2
        assert set(after) <= set(before)
    assert part.ceiling == whole.ceiling


def test_a_filter_fills_the_pool_as_far_as_chunks_match(index: VectorIndex) -> None:
    chunks = [f"boat number {at} of many" for at in range(POOL * 2)]
    many = replace(version(chunks, to=target("https://a.example/many")), metadata={"kind": "many"})
    few = replace(version(["boat"] * 3, to=target("https://a.example/few")), metadata={"kind": "few"})
    index.publish([many, few])
    for kind, size in (("many", POOL), ("few", 3), ("none", 0)):
        wanted = SearchFilter(metadata={"kind": kind})
        lists = index.lists(SearchQuery([KEY], SPACE, "boat", vector_of("boat"), wanted))
        assert (len(lists.keyword), len(lists.vector)) == (size, size)


def test_metadata_that_a_new_version_does_not_replace_is_found(index: VectorIndex) -> None:
    index.publish([replace(version(["boat"]), metadata={"team": "quay"})])
    index.publish([version(["boat yard"], generation=2)])
    assert found_texts(index, {"team": "quay"}) == {"boat yard"}
    index.publish([replace(version(["boat yard"], generation=3), metadata={})])
    assert found_texts(index, {"team": "quay"}) == set()


def found_texts(index: VectorIndex, metadata: dict[str, str]) -> set[str]:
    lists = index.lists(SearchQuery([KEY], SPACE, "boat", None, SearchFilter(metadata=metadata)))
    return {hit.text for hit in index.hits([KEY], [each.chunk_id for each in lists.keyword]).values()}


@pytest.mark.shows("P065")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_hit_has_its_neighbours_in_the_published_version(index: VectorIndex, count: int) -> None:
    index.publish(
        [version([f"old {at}" for at in range(9)]), version(["x"], to=target("https://b.example/"))]
    )
    index.publish([version(["old 0", *(f"new {at}" for at in range(1, 6))], generation=2)])
    lists = index.lists(SearchQuery([KEY], SPACE, "old new", None))
    for hit in index.hits([KEY], [each.chunk_id for each in lists.keyword], count).values():
        around = range(max(0, hit.ordinal - count), min(5, hit.ordinal + count) + 1)
        expected = [at for at in around if at != hit.ordinal]
        assert [each.ordinal for each in hit.neighbours] == expected
        assert [each.text for each in hit.neighbours] == [f"new {at}" if at else "old 0" for at in expected]
        assert all(
            (each.start, each.end) == (100 * each.ordinal, 100 * each.ordinal + 5) for each in hit.neighbours
        )


@pytest.mark.shows("P069")
def test_a_hit_says_what_is_known_of_its_document(index: VectorIndex) -> None:
    fill(index)
    lists = index.lists(SearchQuery([KEY], SPACE, "boat", None))
    for hit in index.hits([KEY], [each.chunk_id for each in lists.keyword]).values():
        assert (hit.facts, hit.metadata) == DOCUMENTS[hit.source_url]
        assert hit.indexed_at is not None
        assert hit.indexed_at.tzinfo is not None


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        ({}, "filter"),
        ({"langage": "en"}, "filter.langage"),
        ({"metadata": {}}, "filter"),
        ({"metadata": {"k": 1}}, "filter.metadata.k"),
        ({"metadata": {"k": {"since": "2026-01-01"}}}, "filter.metadata.k"),
        ({"metadata": {"": "v"}}, "filter.metadata"),
        ({"metadata": {f"{at}": "" for at in range(21)}}, "filter.metadata"),
        ({"metadata_dates": {"k": "2026-01-01"}}, "filter.metadata_dates.k"),
        ({"published_at": {}}, "filter.published_at"),
        ({"published_at": {"since": "yesterday"}}, "filter.published_at.since"),
        ({"published_at": {"since": 20260101}}, "filter.published_at.since"),
        ({"published_at": {"from": "2026-01-01"}}, "filter.published_at.from"),
        ({"published_at": {"since": "2026-01-02", "before": "2026-01-02"}}, "filter.published_at"),
        ({"published_at": "2026-01-02"}, "filter.published_at"),
        ({"url_prefix": ""}, "filter.url_prefix"),
        ({"url_prefix": "a\0"}, "filter.url_prefix"),
        ({"language": 1}, "filter.language"),
    ],
    ids=str,
)
def test_a_filter_that_is_wrong_is_refused_with_its_place(wanted: Any, where: str) -> None:
    with pytest.raises(ValidationError) as raised:
        SearchRequest.model_validate({"query": "x", "filter": wanted})
    assert ".".join(map(str, raised.value.errors()[0]["loc"])).startswith(where)
