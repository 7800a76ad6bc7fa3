"""Quota of each corpus: a full one takes no new documents, and keeps those that it has up to date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from indexmill.contracts.identity import CallerContext, Quota, corpus_key, document_id
from indexmill.contracts.job import SubmitRequest
from indexmill.embedding.adapters.pgvector.index import PostgresGenerations
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from tests.integration.test_renamed_corpora import CALLER, OTHER, URL, Place, refused
from tests.support.jobs import new_job

pytestmark = [pytest.mark.integration, pytest.mark.shows("S38")]

FULL = ("quota_exceeded", "body.corpus_name")


@pytest.fixture
def place(database_url: str) -> Iterator[Place]:
    """Yield a place where a corpus of a free caller may have two chunks, with one that has them."""
    made = Place(database_url)
    limits = JobLimits({"free": Quota(corpus_chunks=2), "pro": Quota()})
    made.store = JobStore(made.database, limits)
    made.submit_jobs = replace(made.submit_jobs, store=made.store)
    for name in ("one", "two"):
        made.finish(made.submit("docs", f"{URL}/{name}"))
    yield made
    made.database.close()


def test_a_full_corpus_takes_no_new_document(place: Place) -> None:
    before = place.rows("SELECT count(*) FROM jobs")
    assert refused(lambda: place.submit("docs", f"{URL}/three")) == FULL
    urls = [f"{URL}/one", f"{URL}/three"]
    batch = SubmitRequest(urls=urls, corpus_name="docs")
    assert refused(lambda: place.submit_jobs(CALLER, batch, "r")) == FULL
    assert place.rows("SELECT count(*) FROM jobs") == before
    assert place.submit("docs", f"{URL}/one"), "a document that it has is indexed again"
    for corpus, ctx in (("other", CALLER), ("docs", OTHER)):
        assert place.submit(corpus, f"{URL}/three", ctx)
    assert place.submit("docs", f"{URL}/three", replace(CALLER, tier="pro"))
    assert place.submit("docs", f"{URL}/four", CallerContext(CALLER.caller_id, internal=True))


def test_a_crawl_leaves_out_what_is_new(place: Place) -> None:
    key = corpus_key(CALLER.caller_id, "docs")
    inserted = []
    for name in ("three", "one"):
        job = new_job(f"{URL}/{name}", CALLER.caller_id)
        target = job.target.model_copy(
            update={"corpus_key": key, "document_id": document_id(key, job.target.url)}
        )
        job = replace(job, target=target, tier="free")
        found = place.store.transaction(lambda tx, job=job: tx.insert_jobs([job], {job.job_id: None}, {}))
        inserted.append(bool(found))
    assert inserted == [False, True]


def test_a_direct_write_learns_how_many_chunks_the_corpus_has(place: Place) -> None:
    numbers = PostgresGenerations(place.database)
    _, first, chunks = numbers.place(CALLER.caller_id, CALLER.caller_id, "docs")
    _, second, none = numbers.place(CALLER.caller_id, CALLER.caller_id, "new")
    assert (chunks, none) == (2, 0)
    assert first < second
