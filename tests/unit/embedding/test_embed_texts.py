from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import cast

import pytest

from indexmill.contracts.content import Chunk, chunk_ids
from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, PermanentError, TransientError
from indexmill.contracts.http_embedding import EmbedRequest, EnqueueRequest
from indexmill.contracts.identity import CallerContext, CorpusIsolation, Quota, corpus_key, document_id
from indexmill.contracts.messages import EmbedTask, read
from indexmill.embedding.documents import resolve
from indexmill.embedding.embed_texts import EmbedTexts
from indexmill.embedding.enqueue import EnqueueEmbed
from indexmill.embedding.targets import ChunkQuota, JobTarget, target_of
from indexmill.platform.observability import Observability
from indexmill.platform.security.urls import canonical_url
from tests.support.embed_tasks import CALLER, RecordingIndex
from tests.twins.blobs import InMemoryBlobs
from tests.twins.chunk_counts import InMemoryChunkCounts
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue

CANONICAL = partial(canonical_url, allowed_hosts=frozenset())
URL = "https://site.example/page"
DAY = 100_000
"""Chunks that a free caller may have."""


class Numbers:
    def __init__(self) -> None:
        self._numbers = count(41)
        self.held = 0

    def next(self) -> int:
        return next(self._numbers)

    def place(self, owner: str, caller_id: str, name: str) -> tuple[str, int, int]:
        return corpus_key(owner, name), self.next(), self.held


class KnownJobs:
    """Jobs by id."""

    def __init__(self) -> None:
        target, *_ = target_of("f" * 16, "theirs", URL, CANONICAL, CorpusIsolation.CALLER, Numbers())
        self.known = {"j-1": JobTarget(target, "embedding", 3, 17)}

    def find(self, job_id: str) -> JobTarget | None:
        return self.known.get(job_id)


class Harness:
    def __init__(self) -> None:
        self.index, self.embedder = RecordingIndex(), HashEmbedder()
        self.queue, self.blobs = InMemoryQueue(), InMemoryBlobs()
        numbers = Numbers()
        self.counts, self.observability = InMemoryChunkCounts(), Observability("quota", level="CRITICAL")
        quotas = {"free": Quota(chunks_per_day=DAY), "pro": Quota(), "enterprise": Quota()}
        quota = ChunkQuota(quotas, self.counts, FrozenClock(), self.observability)
        self.embed = EmbedTexts(self.embedder, self.index, numbers, CANONICAL, quota)
        self.jobs = KnownJobs()
        self.enqueue = EnqueueEmbed(
            self.queue, self.blobs, numbers, self.jobs, CANONICAL, quota, make_id=lambda: "m-1"
        )

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
    answer = harness.embed(caller(), request, timeout_s=7)

    assert answer.embeddings == harness.embedder.embed(["a", "b", "a"], timeout_s=1)
    assert (answer.count, answer.model, answer.dimension, answer.job_id) == (3, "hash", 8, "j")
    assert (answer.document_id, answer.chunk_ids, answer.published) == (None, None, None)
    assert harness.embedder.calls[0] == ["a", "b"]
    assert harness.embedder.timeouts[0] == 7
    assert harness.index.published == []


def test_texts_with_a_url_become_that_documents_chunks(harness: Harness) -> None:
    request = EmbedRequest(texts=["one", "two"], url="HTTPS://Site.Example:443/page#x", title="T")
    answer = harness.embed(caller(), request, timeout_s=7)

    [[version]] = harness.index.published
    expected = document_id(corpus_key(CALLER, "default"), URL)
    assert version.target.model_dump() == {
        "caller_id": CALLER, "corpus_name": "default", "corpus_key": corpus_key(CALLER, "default"),
        "document_id": expected, "url": URL,
    }  # fmt: skip
    assert (version.generation, version.title, version.job_id) == (42, "T", None)
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
        harness.embed(caller(), request, timeout_s=7)

    assert [len(call[0].vectors) for call in harness.index.published] == [2, 0]
    assert [call[0].generation for call in harness.index.published] == [42, 44]


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
        harness.embed(caller(), EmbedRequest.model_validate(fields), timeout_s=7)
    with pytest.raises(CallerError) as also:
        harness.enqueue(caller(), EnqueueRequest.model_validate(fields), "r")

    assert (caught.value.code, also.value.code) == (code, code)
    assert harness.embedder.calls == harness.queue.bodies == []


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "too long"), "token_limit_exceeded", 422),
        (PermanentError(ErrorCode.EMBEDDING_REJECTED, "no"), "embedding_rejected", 422),
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
        harness.embed(caller(), EmbedRequest(texts=["a"], url=URL), timeout_s=7)

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


def test_with_a_job_the_document_and_the_generation_are_the_jobs(harness: Harness) -> None:
    request = EnqueueRequest(texts=["one"], url=URL, job_id="j-1", attempt=3)
    answer = harness.enqueue(caller(internal=True), request, "r")
    target = harness.jobs.known["j-1"].target
    assert (harness.sent().target, harness.sent().generation) == (target, 17)
    assert answer.document_id == target.document_id != document_id(corpus_key(CALLER, "default"), URL)


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"job_id": "j-2"}, "not_found", None),
        ({"attempt": 2}, "invalid_transition", "body.attempt"),
        ({"url": "https://site.example/other"}, "validation_error", "body.url"),
        ({"corpus_name": "mine"}, "validation_error", "body.corpus_name"),
    ],
)
def test_a_job_takes_chunks_of_its_own_document_and_attempt_only(
    harness: Harness, changes: dict[str, object], code: str, field: str | None
) -> None:
    body = {"texts": ["one"], "url": URL, "job_id": "j-1", "attempt": 3, **changes}
    with pytest.raises(CallerError) as caught:
        harness.enqueue(caller(internal=True), EnqueueRequest.model_validate(body), "r")
    assert (caught.value.code, caught.value.field) == (code, field)
    assert harness.queue.bodies == []


def test_a_job_that_is_not_embedded_takes_no_chunks(harness: Harness) -> None:
    known = harness.jobs.known["j-1"]
    request = EnqueueRequest(texts=["one"], url=URL, job_id="j-1", attempt=3)
    for wrong in (replace(known, status="failed"), replace(known, status="chunking", generation=None)):
        harness.jobs.known["j-1"] = wrong
        with pytest.raises(CallerError) as caught:
            harness.enqueue(caller(internal=True), request, "r")
        assert (caught.value.code, caught.value.http_status) == ("invalid_transition", 409)
    assert harness.queue.bodies == []


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


@pytest.mark.shows("S9")
def test_chunks_beyond_the_day_are_refused_until_midnight(harness: Harness) -> None:
    harness.counts.chunks[CALLER] = DAY - 2
    for refused in (
        lambda: harness.embed(caller(), EmbedRequest(texts=["a", "b", "c"]), timeout_s=1),
        lambda: harness.enqueue(caller(), EnqueueRequest(url=URL, texts=["a", "b", "c"]), "r"),
    ):
        with pytest.raises(CallerError) as caught:
            refused()
        error = caught.value
        assert (error.code, error.http_status, error.field) == ("quota_exceeded", 429, "body.texts")
        now = FrozenClock().now()
        assert error.retry_after == 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
    assert harness.queue.bodies == []
    assert harness.counts.chunks[CALLER] == DAY - 2
    harness.embed(caller(), EmbedRequest(texts=["a", "b"]), timeout_s=1)
    assert harness.counts.chunks[CALLER] == DAY


def test_what_came_to_nothing_counts_nothing(harness: Harness) -> None:
    harness.queue.unavailable = True
    with pytest.raises(TransientError):
        harness.enqueue(caller(), EnqueueRequest(url=URL, texts=["a"]), "r")
    assert harness.counts.chunks[CALLER] == 0


def test_callers_of_the_system_and_of_unlimited_tiers_are_not_counted(harness: Harness) -> None:
    harness.enqueue(caller(internal=True), EnqueueRequest(url=URL, texts=["a"]), "r")
    harness.enqueue(CallerContext(CALLER, tier="pro"), EnqueueRequest(url=URL, texts=["a"]), "r")
    assert harness.counts.chunks == {}


def test_without_the_database_nothing_is_refused_and_that_is_counted(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.counts.chunks[CALLER], harness.counts.unavailable = DAY, True
    harness.embed(caller(), EmbedRequest(texts=["a"]), timeout_s=1)
    harness.observability.flush()
    assert "chunk_quota_unavailable_total" in capsys.readouterr().out


def test_a_message_without_a_job_is_in_its_callers_group(harness: Harness) -> None:
    harness.enqueue(caller(), EnqueueRequest(url=URL, texts=["a"]), "r")
    assert harness.queue.groups == [CALLER]


@pytest.mark.shows("S38")
@pytest.mark.parametrize("way", ["embed", "enqueue"])
def test_a_full_corpus_takes_no_direct_write(way: str) -> None:
    harness, most = Harness(), 7
    quota = replace(
        harness.embed.quota, quotas={**harness.embed.quota.quotas, "free": Quota(corpus_chunks=most)}
    )
    embed, enqueue = replace(harness.embed, quota=quota), replace(harness.enqueue, quota=quota)

    def write(ctx: CallerContext) -> object:
        if way == "embed":
            return embed(ctx, EmbedRequest(texts=["one"], url=URL), timeout_s=7)
        return enqueue(ctx, EnqueueRequest(texts=["one"], url=URL), "req-1")

    numbers = cast("Numbers", harness.embed.generations)
    numbers.held = most - 1
    write(caller())
    numbers.held = most
    with pytest.raises(CallerError) as caught:
        write(caller())
    assert (caught.value.code, caught.value.field) == ("quota_exceeded", "body.corpus_name")
    for ctx in (replace(caller(), tier="pro"), caller(internal=True)):
        write(ctx)
