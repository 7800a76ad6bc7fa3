"""Queueing a text without the Orchestrator, and how the parts are put together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from indexmill.chunking.enqueue import EnqueueChunk
from indexmill.chunking.settings import ChunkingApiSettings, ChunkingWorkerSettings
from indexmill.chunking.wiring import build_use_cases, build_worker
from indexmill.contracts.content import ChunkSettings
from indexmill.contracts.errors import CallerError, TransientError
from indexmill.contracts.http_chunking import ChunkEnqueueRequest
from indexmill.contracts.messages import ChunkTask, read
from local.backends.model_files import tokenizer_path
from tests.support.function_env import environment
from tests.support.jobs import CALLER, INTERNAL
from tests.twins.blobs import InMemoryBlobs
from tests.twins.queues import InMemoryQueue

ENVIRONMENT = {
    **environment("ChunkingApi"),
    "CHUNK_QUEUE_URL": "http://sqs/chunk",
    "CHUNK_DLQ_URL": "http://sqs/dlq",
    "CALLBACKS_QUEUE_URL": "http://sqs/callbacks",
    "BUCKET_NAME": "content",
    "STATE_TABLE": "state",
    "TOKENIZER_FILE": str(tokenizer_path()),
}


class Harness:
    """The use case with what it sends."""

    def __init__(self) -> None:
        self.queue, self.blobs = InMemoryQueue(), InMemoryBlobs()
        self.enqueue = EnqueueChunk(self.queue, self.blobs, make_id=lambda: "id-1")

    def task(self) -> ChunkTask:
        (body,) = self.queue.bodies
        return read(ChunkTask, body)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_a_text_is_queued_and_the_answer_names_where_its_chunks_will_be(harness: Harness) -> None:
    wanted = {"max_tokens": 64, "overlap_tokens": 0}
    body = {"text": "Words.", "title": "T", "settings": wanted}
    answer = harness.enqueue(CALLER, ChunkEnqueueRequest.model_validate(body), "r")
    assert (answer.status, answer.job_id, answer.result_key) == ("queued", None, "chunks/id-1.json")
    assert harness.queue.groups == [CALLER.caller_id]
    assert harness.task() == ChunkTask(
        message_id="id-1",
        request_id="r",
        text="Words.",
        title="T",
        settings=ChunkSettings(**wanted),
        result_key="chunks/id-1.json",
    )


def test_an_internal_caller_may_name_a_job(harness: Harness) -> None:
    answer = harness.enqueue(INTERNAL, ChunkEnqueueRequest(text="Words.", job_id="j", attempt=3), "")
    assert (answer.job_id, answer.result_key) == ("j", None)
    task = harness.task()
    assert (task.job_id, task.attempt, task.request_id, task.result_key) == ("j", 3, None, None)


def test_anyone_else_may_not(harness: Harness) -> None:
    with pytest.raises(CallerError) as caught:
        harness.enqueue(CALLER, ChunkEnqueueRequest(text="Words.", job_id="j"), "r")
    assert (caught.value.code, caught.value.http_status, caught.value.field) == (
        *("forbidden", 403),
        "body.job_id",
    )
    assert harness.queue.bodies == []


@pytest.mark.fault("F26")
def test_a_text_that_is_too_large_for_a_message_is_stored(harness: Harness) -> None:
    text = "ä" * 40_000
    harness.enqueue(CALLER, ChunkEnqueueRequest(text=text), "r")
    task = harness.task()
    assert task.text is None
    assert task.text_ref is not None
    assert harness.blobs.get(task.text_ref).decode() == text


def test_a_text_that_was_not_taken_is_an_error(harness: Harness) -> None:
    harness.queue.refuse = {0}
    with pytest.raises(TransientError) as caught:
        harness.enqueue(CALLER, ChunkEnqueueRequest(text="Words."), "r")
    assert caught.value.code == "queue_unavailable"


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"text": ""}',
        '{"text": 1}',
        '{"text": null}',
        '{"text": "a", "extra": 1}',
        '{"text": "a", "job_id": 1}',
        '{"text": "a", "job_id": ""}',
        '{"text": "a", "attempt": 0}',
        '{"text": "a", "text_ref": {"key": "raw/a", "size": 1, "sha256": "0"}}',
        '{"text": "a", "settings": {"max_tokens": 64, "overlap_tokens": 32}}',
    ],
)
def test_requests_are_strict(body: str) -> None:
    with pytest.raises(ValidationError):
        ChunkEnqueueRequest.model_validate_json(body)


def test_the_api_is_built_from_its_environment() -> None:
    queue = InMemoryQueue()
    settings = ChunkingApiSettings.from_environment(ENVIRONMENT)
    api = build_use_cases(settings, queue=queue, blobs=InMemoryBlobs())
    [chunk] = api.documents.one("Hello handbooks", None, ChunkSettings())
    assert chunk.tokens == 3
    api.enqueue(CALLER, ChunkEnqueueRequest(text="Words."), "r")
    assert len(queue.bodies) == 1


def test_the_real_adapters_are_built_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    build_worker(ChunkingWorkerSettings.from_environment(ENVIRONMENT))
    build_use_cases(ChunkingApiSettings.from_environment(ENVIRONMENT))
