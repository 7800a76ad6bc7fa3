"""Documents that are indexed again after an edit: what is embedded, and what search sees of it."""

from __future__ import annotations

import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from statistics import mean

import pytest

from indexmill.client import Client
from indexmill.contracts.job import Job
from tests.support.edited_texts import edited, handbook, inserted
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

EDITS = 5


@pytest.fixture
def corpus() -> str:
    return f"reindex-{uuid.uuid4().hex[:8]}"


def publish(client: Client, corpus: str, text: str, name: str = "handbook.md", *, force: bool = False) -> Job:
    (job,) = client.wait([client.submit_text(name, text, corpus, force=force).job_id], 60)
    return job


def embedded(client: Client, job: Job) -> tuple[float, float]:
    """Return how many chunks of a job were embedded, and how many it used again."""
    assert job.status == "done", job.error
    receipt = client.get(job.job_id, receipt=True).receipt
    assert receipt is not None
    return receipt.chunks_embedded or 0, receipt.chunks_reused or 0


def texts(client: Client, corpus: str, job: Job) -> list[str]:
    return [chunk.text for chunk in client.all_chunks(corpus, job.document_id or "")]


def sections(edition: str, count: int) -> str:
    """Return a text with one chunk for each of its sections."""
    rng = random.Random(edition)
    return "\n\n".join(f"## Section {at}\n\nEdition {edition}: {inserted(rng, 95)}." for at in range(count))


@pytest.mark.shows("X2")
def test_an_edit_embeds_the_chunks_near_it_and_no_change_none(client: Client, corpus: str) -> None:
    rng = random.Random(61)
    text = handbook(rng, "paragraphs", sections=2)
    first, reused = embedded(client, publish(client, corpus, text))
    assert (first > 25, reused) == (True, 0)

    counts = []
    for _ in range(EDITS):
        text = edited(rng, text)
        job = publish(client, corpus, text)
        counts.append(embedded(client, job)[0])
        assert client.content(corpus, job.document_id or "") == text
    assert mean(counts) <= 3.5
    assert max(counts) <= 9
    assert embedded(client, publish(client, corpus, text, force=True))[0] == 0


@pytest.mark.shows("X2")
def test_a_text_is_paid_for_once_in_a_corpus_and_by_each_caller(
    stack: RunningStack, client: Client, corpus: str
) -> None:
    text = sections("once", 4)
    assert embedded(client, publish(client, corpus, text)) == (4, 0)
    copy = publish(client, corpus, text, "copy.md")
    assert embedded(client, copy) == (0, 4)
    assert embedded(client, publish(client, f"{corpus}-2", text)) == (4, 0)
    with stack.second_client() as other:
        assert embedded(other, publish(other, corpus, text)) == (4, 0)
    found = client.search("edition once", corpus, 20, mode="vector").results
    assert sum(hit.document_id == copy.document_id for hit in found) == 4


def test_a_document_of_ten_chunks_that_has_four_leaves_exactly_four(client: Client, corpus: str) -> None:
    long = publish(client, corpus, sections("long", 10))
    assert len(texts(client, corpus, long)) == 10
    short = publish(client, corpus, sections("short", 4))
    assert len(texts(client, corpus, short)) == 4
    assert all("Edition short" in text for text in texts(client, corpus, short))
    assert len(client.search("edition", corpus, 100, mode="keyword").results) == 4
    assert len(client.search("edition", corpus, 100, mode="vector").results) == 4


def test_a_failed_reindex_leaves_the_version_before_whole(client: Client, corpus: str) -> None:
    job = publish(client, corpus, sections("good", 6))
    before = texts(client, corpus, job)
    bad = publish(client, corpus, " \n ")
    assert (bad.status, bad.error.code if bad.error else None) == ("failed", "empty_content")
    assert texts(client, corpus, job) == before
    assert len(client.search("edition good", corpus, 100, mode="keyword").results) == 6


def test_a_reader_never_sees_chunks_of_two_versions(stack: RunningStack, client: Client, corpus: str) -> None:
    publish(client, corpus, sections("zero", 10))
    expected = {"zero": 10, "one": 4, "two": 9, "three": 5}
    ended, seen, wrong = threading.Event(), set[str](), list[object]()

    def read() -> None:
        with stack.client() as reader:
            while not ended.is_set():
                found = reader.search("edition", corpus, 100, mode="keyword").results
                editions = {hit.text.partition("Edition ")[2].partition(":")[0] for hit in found}
                seen.update(editions)
                if [len(found)] != [expected.get(edition) for edition in editions]:
                    wrong.append((len(found), editions))

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            for edition, count in list(expected.items())[1:]:
                assert publish(client, corpus, sections(edition, count)).status == "done"
        finally:
            ended.set()
        reading.result(30)
    assert wrong == []
    assert len(seen) > 1
