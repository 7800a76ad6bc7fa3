"""The whole way from URLs to search results, and who may see them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import httpx
import psycopg
import pytest

from indexmill.client import ApiError, Client
from indexmill.contracts.http_search import SearchResponse
from indexmill.contracts.job import Job
from local.demo.checks import differences
from local.faults.activation import control_folder
from local.faults.cloud import Cloud
from local.site.catalogue import DONE, PAGES, QUERIES
from tests.support.stack import RunningStack, index

pytestmark = pytest.mark.e2e

SITE = "site"
UNHAPPY = {
    "/lost.html": ("http_404", "There is no page at this URL. Check the address."),
    "/private/ledger.html": ("robots_disallowed", "The site does not allow automated access to this page."),
    "/empty.html": ("empty_content", "The page has no readable text."),
    "/badge.png": ("unsupported_content_type", "This type of file cannot be indexed yet."),
    "/status/403": ("http_403", "The URL is blocked. Check that it is publicly accessible."),
}


@pytest.fixture(scope="module")
def other(stack: RunningStack) -> Iterator[Client]:
    """Yield another caller's client."""
    with stack.second_client() as opened:
        yield opened


@pytest.fixture(scope="module")
def whole_site(stack: RunningStack, client: Client) -> list[Job]:
    """Return the jobs of every page of the built-in site, submitted as one batch."""
    urls = [stack.site + page.path for page in PAGES]
    accepted = client.submit(urls, SITE)
    assert (accepted.url_count, (accepted.job_ids or [""])[0]) == (len(urls), accepted.job_id)
    jobs = client.wait(accepted.job_ids or (), 60)
    assert [job.url for job in jobs] == urls
    assert {job.batch_id for job in jobs} == {accepted.batch_id}
    return jobs


def published(found: SearchResponse) -> list[tuple[str, str, int]]:
    return sorted((hit.chunk_id, hit.source_url, hit.ordinal) for hit in found.results)


def submitted(jobs: list[Job]) -> list[Job]:
    """Return the jobs without those of the sweeper, which reads a page that is published beside its original
    again."""
    return [job for job in jobs if job.replay_of is None]


def test_every_page_ends_as_it_should(stack: RunningStack, whole_site: list[Job]) -> None:
    assert differences(stack.site, whole_site) == []


@pytest.mark.parametrize(("query", "path"), QUERIES, ids=[path for _, path in QUERIES])
@pytest.mark.usefixtures("whole_site")
def test_the_right_page_ranks_first(stack: RunningStack, client: Client, query: str, path: str) -> None:
    hits = client.search(query, SITE, 5).results
    assert hits[0].source_url == stack.site + path
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len({hit.chunk_id for hit in hits}) == len(hits) == 5


@pytest.mark.usefixtures("whole_site")
def test_the_offsets_of_every_hit_are_those_of_its_documents_text(client: Client) -> None:
    texts = {each.document_id: client.content(SITE, each.document_id) for each in client.all_documents(SITE)}
    lengths = {each.document_id: each.text_length for each in client.all_documents(SITE)}
    assert {document_id: len(text) for document_id, text in texts.items()} == lengths
    for document_id, text in texts.items():
        for chunk in client.all_chunks(SITE, document_id):
            assert text[chunk.start : chunk.end] == chunk.text
    hits = [hit for query, _ in QUERIES for hit in client.search(query, SITE, 100).results]
    assert len({hit.chunk_id for hit in hits}) > 20
    for hit in hits:
        assert texts[hit.document_id][hit.start : hit.end] == hit.text
        assert (hit.page is not None) == hit.source_url.endswith(".pdf")
    assert any(hit.page for hit in hits)


def test_a_version_without_its_text_gets_it_at_the_next_visit(stack: RunningStack, client: Client) -> None:
    """As one of an earlier release, whose columns are empty: nothing is embedded again."""
    corpus = f"older-{uuid.uuid4().hex[:8]}"
    first = index(client, stack.site + PAGES[0].path, corpus)
    document_id = first.document_id or ""
    text = client.content(corpus, document_id)
    with psycopg.connect(stack.database_url) as connection:
        connection.execute(
            "UPDATE documents SET text_generation = NULL, text_rest = NULL WHERE document_id = %s",
            (document_id,),
        )
    with pytest.raises(ApiError) as expired:
        client.content(corpus, document_id)
    assert (expired.value.status, expired.value.code) == (410, "content_expired")
    again = index(client, stack.site + PAGES[0].path, corpus)
    assert (again.status, again.unchanged, again.change) == ("done", None, "same")
    assert again.chunks is not None
    assert (again.chunks.embedded, again.chunks.reused) == (0, first.chunk_count)
    assert client.content(corpus, document_id) == text
    assert index(client, stack.site + PAGES[0].path, corpus).unchanged


def test_every_message_of_a_job_has_the_request_that_caused_it(
    stack: RunningStack, client: Client, http: httpx.Client
) -> None:
    body = {"url": stack.site + PAGES[0].path, "corpus_name": f"request-{uuid.uuid4()}"}
    answer = http.post("/orchestrator/jobs", json=body, headers={"X-Request-Id": "whose-job-7"})
    (job,) = client.wait([answer.json()["job_id"]], 30)
    with psycopg.connect(stack.database_url) as connection:
        rows = connection.execute(
            "SELECT stage, payload::jsonb->>'request_id' FROM outbox WHERE job_id = %s ORDER BY created_at",
            (job.job_id,),
        ).fetchall()
    assert rows == [(stage, "whose-job-7") for stage in ("scraping", "chunking", "embedding")]


@pytest.mark.usefixtures("whole_site")
def test_a_search_with_a_vector_finds_by_meaning(
    stack: RunningStack, client: Client, http: httpx.Client
) -> None:
    query, path = QUERIES[0]
    (vector,) = client.embed([query]).embeddings
    asked = {"query_embedding": vector, "corpus_name": SITE, "top_k": 3}
    answer = http.post("/embedding/search", json=asked)
    found = SearchResponse.model_validate_json(answer.content)
    assert found.results[0].source_url == stack.site + path
    assert 0 < found.results[-1].score <= found.results[0].score <= 1
    short = http.post("/embedding/search", json={**asked, "query_embedding": vector[:-1]})
    assert (short.status_code, short.json()["error"]["code"]) == (422, "dimension_mismatch")


def test_without_the_variable_for_faults_functions_are_not_touched(
    stack: RunningStack, client: Client
) -> None:
    assert client.scrape(f"{stack.site}/handbook.html").title
    assert not control_folder(Path(stack.state)).exists()


def test_a_page_that_did_not_change_keeps_its_chunks(stack: RunningStack, client: Client) -> None:
    url, corpus = f"{stack.site}/workshops/bindery.html", "again"
    first = index(client, url, corpus)
    before = client.search("paste", corpus, 100)
    second = index(client, url, corpus)
    assert (first.status, second.status) == (DONE, DONE)
    assert second.job_id != first.job_id
    assert (second.document_id, second.chunk_count) == (first.document_id, first.chunk_count)
    after = client.search("paste", corpus, 100)
    assert published(after) == published(before)
    assert len(before.results) == first.chunk_count


def test_a_page_that_did_not_change_is_not_stored_again(stack: RunningStack, client: Client) -> None:
    url, bucket = f"{stack.site}/collections/telescopes.html", stack.resources["ContentBucket"]
    body = httpx.get(url).content
    digest = hashlib.sha256(body).hexdigest()
    s3 = Cloud(asdict(stack)).s3
    stored = {"Bucket": bucket, "Key": f"raw/{digest[:2]}/{digest}"}
    index(client, url, "unchanged")
    # Another write of the object would drop the mark.
    s3.put_object(**stored, Body=body, Metadata={"written-by": "test"})
    again = index(client, url, "unchanged")
    assert s3.head_object(**stored)["Metadata"] == {"written-by": "test"}
    replay = client.replay(again.job_id, stored=True)
    (job,) = client.wait([replay.job_id], 40)
    assert (job.status, client.diff(job.job_id).same) == (DONE, True)
    index(client, url, "unchanged-2")
    assert s3.head_object(**stored)["Metadata"] == {}


def test_a_redirect_is_indexed_under_the_url_that_was_asked_for(stack: RunningStack, client: Client) -> None:
    corpus = "redirect"
    job = index(client, f"{stack.site}/old-handbook", corpus)
    assert (job.status, job.title) == (DONE, "The Keeper's Handbook")
    assert {hit.source_url for hit in client.search("keeper", corpus).results} == {
        f"{stack.site}/old-handbook"
    }
    assert client.scrape(f"{stack.site}/old-handbook").final_url == f"{stack.site}/handbook.html"


def test_spellings_of_one_url_are_one_document(stack: RunningStack, client: Client) -> None:
    corpus = "spellings"
    plain = index(client, f"{stack.site}/visit/opening-hours.html", corpus)
    odd = index(client, f"{stack.site.replace('http', 'HTTP')}/de/../visit/opening%2Dhours.html#top", corpus)
    assert (odd.status, odd.document_id) == (DONE, plain.document_id)
    sources = [hit.source_url for hit in client.search("open", corpus, 100).results]
    assert sources == [plain.url] * len(sources)
    assert len(sources) == plain.chunk_count


def test_what_cannot_be_indexed_says_why(stack: RunningStack, client: Client) -> None:
    accepted = client.submit([stack.site + path for path in UNHAPPY], "unhappy")
    jobs = client.wait(accepted.job_ids or (), 30)
    reported = {
        job.url.removeprefix(stack.site): (job.error and job.error.code, job.user_message) for job in jobs
    }
    assert reported == UNHAPPY
    assert {job.failed_stage for job in jobs} == {"scraping"}


@pytest.mark.shows("B67")
def test_a_corpus_without_a_page_answers_with_nothing(stack: RunningStack, client: Client) -> None:
    assert index(client, f"{stack.site}/lost.html", "nothing").status == "failed"
    assert client.search("anything", "nothing").results == []


@pytest.mark.shows("B67")
def test_an_unknown_corpus_is_not_found(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.search("anything", "never-was")
    assert (refused.value.status, refused.value.code) == (404, "not_found")


@pytest.mark.shows("B64")
@pytest.mark.shows("S2")
@pytest.mark.usefixtures("whole_site")
def test_another_callers_corpus_is_not_found(other: Client) -> None:
    with pytest.raises(ApiError) as refused:
        other.search("telescope", SITE)
    assert (refused.value.status, refused.value.code) == (404, "not_found")


@pytest.mark.shows("S2", "S32")
def test_two_callers_with_one_corpus_name_see_their_own(
    stack: RunningStack, client: Client, other: Client
) -> None:
    corpus = "same-name"
    mine, theirs = f"{stack.site}/collections/bookboat.html", f"{stack.site}/visit/opening-hours.html"
    assert (index(client, mine, corpus).status, index(other, theirs, corpus).status) == (DONE, DONE)
    assert {hit.source_url for hit in client.search("boat", corpus, 100).results} == {mine}
    assert {hit.source_url for hit in other.search("boat", corpus, 100).results} == {theirs}
    assert {job.url for job in other.list(corpus_name=corpus).jobs} == {theirs}


@pytest.mark.shows("B72")
@pytest.mark.shows("S1")
def test_another_callers_job_answers_like_an_unknown_one(
    stack: RunningStack, whole_site: list[Job], other: Client
) -> None:
    same_id = {"X-Request-Id": "one-and-the-same"}
    with stack.http(stack.other_api_key) as caller:
        foreign = caller.get(f"/orchestrator/jobs/{whole_site[0].job_id}", headers=same_id)
        unknown = caller.get(f"/orchestrator/jobs/{uuid.uuid4()}", headers=same_id)
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert foreign.headers.keys() == unknown.headers.keys()
    with pytest.raises(ApiError):
        other.get(whole_site[0].job_id)


def test_the_list_comes_in_pages_newest_first(client: Client, whole_site: list[Job]) -> None:
    seen: list[Job] = []
    cursor: str | None = None
    while True:
        page = client.list(corpus_name=SITE, limit=8, cursor=cursor)
        assert page.count == len(page.jobs) <= 8
        seen += page.jobs
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len({job.job_id for job in seen})
    assert {job.job_id for job in submitted(seen)} == {job.job_id for job in whole_site}
    order = [(job.created_at, job.job_id) for job in seen]
    assert order == sorted(order, reverse=True)


def test_the_list_can_be_filtered(stack: RunningStack, client: Client, whole_site: list[Job]) -> None:
    failed = client.list(corpus_name=SITE, status="failed").jobs
    assert {job.job_id for job in failed} == {job.job_id for job in whole_site if job.status == "failed"}
    assert client.list(corpus_name=SITE, failed_stage="embedding").jobs == []
    assert len(client.list(corpus_name=SITE, failed_stage="scraping").jobs) == len(failed)
    url = f"{stack.site}/badge.png"
    assert [job.url for job in client.list(corpus_name=SITE, url=url).jobs] == [url]
    moment = whole_site[0].created_at.isoformat()
    assert client.list(corpus_name=SITE, created_before=moment).jobs == []
    assert len(submitted(client.list(corpus_name=SITE, created_after=moment).jobs)) == len(whole_site)
