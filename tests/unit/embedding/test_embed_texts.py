from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from indexmill.contracts.content import Chunk, chunk_ids
from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, PermanentError, TransientError
from indexmill.contracts.http_embedding import EmbedRequest, EnqueueRequest
from indexmill.contracts.identity import CallerContext, corpus_key, document_id
from indexmill.contracts.messages import EmbedTask, read
from indexmill.embedding.documents import resolve
from indexmill.embedding.embed_texts import EmbedTexts
from indexmill.embedding.enqueue import EnqueueEmbed
from indexmill.platform.security.urls import canonical_url
from tests.support.embed_tasks import CALLER, RecordingIndex
from tests.twins.blobs import InMemoryBlobs
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue

CANONICAL = partial(canonical_url, allowed_hosts=frozenset())
URL = "https://site.example/page"


class Numbers:
    def __init__(self) -> None:
        self._numbers = count(41)

    def next(self) -> int:
        return next(self._numbers)


class Harness:
    def __init__(self) -> None:
        self.index, self.embedder = RecordingIndex(), HashEmbedder()
        self.queue, self.blobs = InMemoryQueue(), InMemoryBlobs()
        numbers = Numbers()
        self.embed = EmbedTexts(self.embedder, self.index, numbers, CANONICAL)
        self.enqueue = EnqueueEmbed(self.queue, self.blobs, numbers, CANONICAL, make_id=lambda: "m-1")

    def sent(self) -> EmbedTask:
        [body] = self.queue.bodies
        return read(EmbedTask, body)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def caller(internal: bool = False) -> CallerContext:
    return CallerContext(CALLER, internal=internal)


def test_texts_without_a_url_only_give_vectors(harness: Harness) -> None:
    request = EmbedRequest(texts=["a", "b", "a"], job_id="j")
    answer = harness.embed(CALLER, request, timeout_s=7)

    assert answer.embeddings == harness.embedder.embed(["a", "b", "a"], timeout_s=1)
    assert (answer.count, answer.model, answer.dimension, answer.job_id) == (3, "hash", 8, "j")
    assert (answer.document_id, answer.chunk_ids, answer.published) == (None, None, None)
    assert harness.embedder.calls[0] == ["a", "b"]
    assert harness.embedder.timeouts[0] == 7
    assert harness.index.published == []


def test_texts_with_a_url_become_that_documents_chunks(harness: Harness) -> None:
    request = EmbedRequest(texts=["one", "two"], url="HTTPS://Site.Example:443/page#x", title="T")
    answer = harness.embed(CALLER, request, timeout_s=7)

    [[version]] = harness.index.published
    expected = document_id(corpus_key(CALLER, "default"), URL)
    assert version.target.model_dump() == {
        "caller_id": CALLER, "corpus_name": "default", "corpus_key": corpus_key(CALLER, "default"),
        "document_id": expected, "url": URL,
    }  # fmt: skip
    assert (version.generation, version.title, version.job_id) == (41, "T", None)
    assert [(chunk.ordinal, chunk.text, chunk.start, chunk.end) for chunk in version.chunks] == [
        (0, "one", 0, 3), (1, "two", 5, 8),
    ]  # fmt: skip
    assert answer.chunk_ids == version.chunk_ids == chunk_ids(expected, list(version.chunks))
    assert answer.document_id == expected
    assert answer.published is True
    assert [list(version.vectors[chunk_id]) for chunk_id in version.chunk_ids] == answer.embeddings


def test_the_same_texts_again_write_no_vector_twice(harness: Harness) -> None:
    request = EmbedRequest(texts=["one", "two"], url=URL)
    for _ in range(2):
        harness.embed(CALLER, request, timeout_s=7)

    assert [len(call[0].vectors) for call in harness.index.published] == [2, 0]
    assert [call[0].generation for call in harness.index.published] == [41, 42]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"corpus_name": "No"}, "corpus_name_invalid"),
        ({"url": "ftp://site.example/"}, "url_scheme_not_allowed"),
        ({"url": "http://127.0.0.1/"}, "url_host_not_allowed"),
    ],
)
def test_a_wrong_corpus_or_url_is_refused_before_any_work(
    harness: Harness, change: dict[str, str], code: str
) -> None:
    fields = {"texts": ["a"], "url": URL, **change}
    with pytest.raises(CallerError) as caught:
        harness.embed(CALLER, EmbedRequest.model_validate(fields), timeout_s=7)
    with pytest.raises(CallerError) as also:
        harness.enqueue(caller(), EnqueueRequest.model_validate(fields), "r")

    assert (caught.value.code, also.value.code) == (code, code)
    assert harness.embedder.calls == harness.queue.bodies == []


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "too long"), "token_limit_exceeded", 422),
        (PermanentError(ErrorCode.EMBEDDING_REJECTED, "no"), "embedding_unavailable", 503),
        (PermanentError(ErrorCode.DIMENSION_MISMATCH, "no"), "embedding_unavailable", 503),
        (TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down", retry_after=4), "openai_rate_limit", 503),
        (TransientError(ErrorCode.EMBEDDING_INVALID, "nan"), "embedding_invalid", 502),
    ],
    ids=lambda value: str(getattr(value, "code", value)),
)
def test_errors_of_the_model_reach_the_caller(
    harness: Harness, error: IndexmillError, code: str, status: int
) -> None:
    harness.embedder.fail_next = [error]
    with pytest.raises(IndexmillError) as caught:
        harness.embed(CALLER, EmbedRequest(texts=["a"], url=URL), timeout_s=7)

    assert (caught.value.code, caught.value.http_status) == (code, status)
    assert caught.value.retry_after == error.retry_after
    assert harness.index.published == []


@pytest.mark.parametrize(
    "texts",
    [[], ["a"] * 129, [""], [" \n"], ["a" * 32_001], [1], [None], "a", None, ["a", ["b"]]],
    ids=["none", "129", "empty", "blank", "long", "number", "null", "no list", "nothing", "nested"],
)
def test_texts_out_of_bounds_are_refused(texts: object) -> None:
    with pytest.raises(ValueError, match="texts"):
        EmbedRequest.model_validate({"texts": texts})


def test_enqueued_texts_wait_as_one_message(harness: Harness) -> None:
    answer = harness.enqueue(caller(), EnqueueRequest(texts=["one", "two"], url=URL, title="T"), "req-1")

    task = harness.sent()
    assert (answer.status, answer.job_id, answer.chunk_count) == ("queued", None, 2)
    assert answer.document_id == task.target.document_id
    assert (task.message_id, task.job_id, task.request_id, task.generation) == ("m-1", None, "req-1", 41)
    assert [chunk.text for chunk in task.chunks or []] == ["one", "two"]
    assert task.chunk_count == 2


def test_chunks_of_the_chunking_endpoint_can_be_enqueued_as_they_are(harness: Harness) -> None:
    given = Chunk(ordinal=7, text="text", context="T > A", start=3, end=7, tokens=9)
    harness.enqueue(caller(), EnqueueRequest.model_validate({"chunks": [given.model_dump()], "url": URL}), "")

    assert harness.sent().chunks == [given.model_copy(update={"ordinal": 0})]


def test_many_chunks_travel_by_reference(harness: Harness) -> None:
    texts = [f"{at} " + "word " * 200 for at in range(100)]
    harness.enqueue(caller(), EnqueueRequest(texts=texts, url=URL), "r")

    task = harness.sent()
    assert task.chunks is None
    assert len(harness.queue.bodies[0]) < 2_000
    assert [chunk.text for chunk in resolve(0, task, harness.blobs).chunks] == texts


def test_only_internal_callers_may_name_a_job(harness: Harness) -> None:
    request = EnqueueRequest(texts=["one"], url=URL, job_id="j-1", attempt=3)
    with pytest.raises(CallerError) as caught:
        harness.enqueue(caller(), request, "r")
    assert (caught.value.code, caught.value.http_status) == ("forbidden", 403)
    assert harness.queue.bodies == []

    assert harness.enqueue(caller(internal=True), request, "r").job_id == "j-1"
    assert (harness.sent().job_id, harness.sent().attempt) == ("j-1", 3)


def test_a_queue_that_refuses_the_message_is_an_error(harness: Harness) -> None:
    harness.queue.refuse = {0}
    with pytest.raises(TransientError) as caught:
        harness.enqueue(caller(), EnqueueRequest(texts=["one"], url=URL), "r")
    assert caught.value.http_status == 503


@pytest.mark.parametrize(
    "body",
    [
        {"url": URL}, {"texts": ["a"]}, {"texts": ["a"], "chunks": [{"text": "a"}], "url": URL},
        {"chunks": [], "url": URL}, {"chunks": [{"text": ""}], "url": URL},
        {"chunks": [{"text": "a", "x": 1}], "url": URL},
        {"chunks": [{"text": "a", "ordinal": "0"}], "url": URL}, {"texts": ["a"], "url": ""},
    ],
)  # fmt: skip
def test_enqueue_requests_that_are_not_one_are_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="EnqueueRequest"):
        EnqueueRequest.model_validate(body)
