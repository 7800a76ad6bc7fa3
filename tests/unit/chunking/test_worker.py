"""The chunk queue's worker: a document's failure is its own, and results are sent once per batch."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.chunking.ports import Marks
from indexmill.chunking.worker import ChunkBatch, ChunkDocuments
from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import Chunked, ChunkTask, StageResult, read, stage_result, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Poison, Retry, Wait
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from tests.support.events import FakeContext, sqs_event
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryDeliveryLog
from tests.twins.tokenizer import WordTokenizer

REF = BlobRef(key="text/00/00", size=1, sha256="0" * 64)
POISON = "poison"


class Blobs(InMemoryBlobs):
    """Unavailable on demand."""

    unavailable = False

    def get(self, ref: BlobRef) -> bytes:
        self._reach()
        return super().get(ref)

    def put_at(self, key: str, data: bytes, *, content_type: str) -> None:
        self._reach()
        super().put_at(key, data, content_type=content_type)

    def _reach(self) -> None:
        if self.unavailable:
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "away")


class Queue(InMemoryQueue):
    """Counts how often it was sent to."""

    sends = 0

    def send(self, *given: Any) -> list[int]:
        self.sends += 1
        return super().send(*given)


class Deadly(WordTokenizer):
    """Ends the process at some texts, or at all."""

    at = ""

    def marks(self, text: str) -> Marks:
        if self.at and self.at in text:
            raise SystemExit(1)
        return super().marks(text)


class Harness:
    """The worker with everything around it."""

    def __init__(self) -> None:
        self.blobs, self.callbacks, self.clock = Blobs(), Queue(), FrozenClock()
        self.tokenizer = Deadly()
        documents = ChunkDocuments(self.tokenizer, self.blobs)
        self.batch = ChunkBatch(documents, self.callbacks, self.clock)
        self.source, self.dead = InMemoryQueue(), InMemoryQueue()
        notes = InMemoryDeliveryLog(self.clock)
        self.handler = SqsBatch(
            ChunkTask,
            self.batch,
            source=self.source,
            dead=self.dead,
            delivery_log=notes,
            observability=Observability("test", level="CRITICAL"),
            clock=self.clock,
        )

    def handle(self, *deliveries: Delivery[ChunkTask]) -> list[Any]:
        return list(self.batch(deliveries))

    def results(self) -> list[StageResult]:
        return [read(StageResult, body) for body in self.callbacks.bodies]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def task(name: str, text: str | None = "Some words.", **more: Any) -> ChunkTask:
    known = {"message_id": name, "job_id": f"job-{name}", "attempt": 2, "request_id": "r"}
    return ChunkTask.model_validate({**known, "text": text, **more})


def delivery(message: ChunkTask, **more: Any) -> Delivery[ChunkTask]:
    return Delivery(message, more.pop("receive_count", 1), more.pop("deadline", 1e9), **more)


def test_a_batch_is_one_send_and_one_failure_affects_no_other(harness: Harness) -> None:
    bad = [task("b", "  "), task("c", None, text_ref=REF)]
    outcomes = harness.handle(*map(delivery, [task("a"), *bad, task("d")]))
    assert (outcomes, harness.callbacks.sends) == ([Done()] * 4, 1)
    found = harness.results()
    assert [each.status for each in found] == ["success", "failed", "failed", "success"]
    assert [each.failure.code for each in found if each.failure] == ["empty_content", "content_missing"]
    assert {(each.stage, each.attempt, each.request_id, each.tries) for each in found} == {
        ("chunking", 2, "r", 1)
    }
    assert [(each.message_id, each.job_id) for each in found] == [
        (f"{name}:result", f"job-{name}") for name in "abcd"
    ]


@pytest.mark.fault("F76")
def test_storage_that_is_unavailable_backs_off_and_fails_after_four_tries(harness: Harness) -> None:
    harness.blobs.unavailable = True
    stored = task("a", None, text_ref=REF)
    for tries in (1, 2, 3):
        outcome, other = harness.handle(delivery(stored, tries=tries), delivery(task("b")))
        assert isinstance(outcome, Retry)
        assert (outcome.reason, other) == ("storage_unavailable", Done())
        assert 0 <= outcome.after_s <= 2 ** (tries - 1)
    (last,) = harness.handle(delivery(stored, tries=4))
    failure = harness.results()[-1].failure
    assert failure is not None
    assert (last, failure.code, failure.cause, failure.tries) == (
        *(Done(), "max_retries_exceeded", "storage_unavailable"),
        4,
    )


def test_a_wait_longer_than_a_moment_is_reported_to_the_job(harness: Harness) -> None:
    harness.blobs.unavailable = True
    (outcome,) = harness.handle(delivery(task("a", None, text_ref=REF), least_wait_s=45.0))
    (reported,) = harness.results()
    assert isinstance(outcome, Retry)
    assert (reported.status, reported.retrying.retry_in_s if reported.retrying else None) == (
        "retrying",
        45.0,
    )


@pytest.mark.fault("F25")
def test_only_what_the_callback_queue_refused_is_split_again(harness: Harness) -> None:
    harness.callbacks.refuse = {1}
    first, second, third = harness.handle(*(delivery(task(name)) for name in "abc"))
    assert (first, third) == (Done(), Done())
    assert isinstance(second, Wait)
    assert [each.message_id for each in harness.results()] == ["a:result", "c:result"]
    harness.callbacks.unavailable = True
    assert all(isinstance(each, Wait) for each in harness.handle(delivery(task("a")), delivery(task("b"))))


def test_a_document_that_there_is_no_time_for_waits(harness: Harness) -> None:
    now = harness.clock.monotonic()
    harness.handle(delivery(task("a"), deadline=now + 60))
    late = delivery(task("b"), deadline=now + 0.1)
    first, second = harness.handle(delivery(task("a"), deadline=now + 60), late)
    assert (first, isinstance(second, Wait)) == (Done(), True)


def test_a_defect_met_by_one_document_is_its_own(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ChunkDocuments.one

    def broken(self: ChunkDocuments, text: str, *more: Any) -> Any:
        if POISON in text:
            raise RuntimeError("surprise")
        return one(self, text, *more)

    monkeypatch.setattr(ChunkDocuments, "one", broken)
    bad, good = harness.handle(delivery(task("a", POISON)), delivery(task("b")))
    assert isinstance(bad, Retry)
    assert (bad.reason, good) == ("internal_error", Done())
    harness.handle(delivery(task("a", POISON), tries=4))
    failure = harness.results()[-1].failure
    assert (failure.code if failure else None) == "internal_error"


def test_without_a_job_the_result_is_stored_where_it_was_promised(harness: Harness) -> None:
    good = task("a", job_id=None, result_key="chunks/a.json")
    bad = task("b", "  ", job_id=None, result_key="chunks/b.json")
    assert harness.handle(delivery(good), delivery(bad)) == [Done()] * 2
    made = Chunked.model_validate_json(harness.blobs.objects["chunks/a.json"])
    assert [chunk.text for chunk in made.chunks or []] == ["Some words."]
    failed = Chunked.model_validate_json(harness.blobs.objects["chunks/b.json"])
    assert (failed.failure.code if failed.failure else None) == "empty_content"
    assert harness.callbacks.sends == 0


def test_a_result_that_cannot_be_stored_is_tried_again_and_ends_as_a_dead_letter(harness: Harness) -> None:
    harness.blobs.unavailable = True
    good = task("a", job_id=None, result_key="chunks/a.json")
    assert isinstance(harness.handle(delivery(good))[0], Retry)
    assert harness.handle(delivery(good, tries=4)) == [Poison("storage_unavailable")]
    assert harness.blobs.objects == {}


def test_a_text_that_ends_its_worker_leaves_its_failure_in_the_promised_object(harness: Harness) -> None:
    deadly = delivery(task("a", job_id=None, result_key="chunks/a.json"), crashes=3)
    harness.blobs.unavailable = True
    assert harness.handle(deadly) == [Wait(5.0, "storage_unavailable")]
    harness.blobs.unavailable = False
    assert harness.handle(deadly) == [Poison("worker_crashed")]
    stored = Chunked.model_validate_json(harness.blobs.objects["chunks/a.json"])
    assert (stored.failure.code if stored.failure else None, stored.chunks) == ("worker_crashed", None)


def test_a_result_of_a_job_has_no_failure_inside_its_output() -> None:
    failure = {"code": "parse_error", "message": "m"}
    with pytest.raises(ValidationError, match="beside its output"):
        stage_result(
            message_id="m", job_id="j", stage="chunking", status="success", chunked={"failure": failure}
        )


class Queued:
    """A chunk queue whose worker may die."""

    def __init__(self, harness: Harness, *tasks: ChunkTask) -> None:
        self.harness, self.receives = harness, dict.fromkeys((each.message_id for each in tasks), 0)
        self.bodies = {each.message_id: write(each) for each in tasks}

    def deliver(self) -> None:
        """Deliver everything once; a dead worker's messages stay."""
        for name in self.bodies:
            self.receives[name] += 1
        event = sqs_event(*self.bodies.values())
        for record, name in zip(event["Records"], self.bodies, strict=True):
            record |= {"messageId": name, "receiptHandle": name}
            record["attributes"] = {"ApproximateReceiveCount": str(self.receives[name])}
        try:
            failed = self.harness.handler(event, FakeContext())["batchItemFailures"]
            kept = {each["itemIdentifier"] for each in failed}
        except SystemExit:
            kept = set(self.bodies) - set(self.harness.source.deleted)
        self.bodies = {name: body for name, body in self.bodies.items() if name in kept}


@pytest.mark.fault("F76")
@pytest.mark.parametrize("receives", [2, 60], ids=["does not start", "throttled for hours"])
def test_a_message_that_no_worker_took_is_split_when_one_does(harness: Harness, receives: int) -> None:
    queue = Queued(harness, *(task(name) for name in "abc"))
    # Each receive without an invocation counts in the queue: of a throttled, missing or broken function.
    queue.receives = dict.fromkeys(queue.receives, receives)
    for _ in range(5):
        queue.deliver()
    assert queue.bodies == {}
    assert {(each.message_id, each.status) for each in harness.results()} == {
        (f"{name}:result", "success") for name in "abc"
    }


@pytest.mark.fault("F76", "F77")
@pytest.mark.parametrize("deadly", [POISON, "words"], ids=["one document", "every document"])
def test_a_document_that_ends_its_worker_three_times_is_poison(harness: Harness, deadly: str) -> None:
    harness.tokenizer.at = deadly
    queue = Queued(harness, task("a", "Some words."), task("b", f"{POISON} words"), task("c", "More words."))
    for _ in range(20):
        if not queue.bodies:
            break
        queue.deliver()
    assert queue.bodies == {}
    failures = {each.message_id[0]: each.failure for each in harness.results()}
    dead = ["b"] if deadly == POISON else ["a", "b", "c"]
    assert [name for name, failure in sorted(failures.items()) if failure] == dead
    assert {(each.code, each.cause) for each in failures.values() if each} == {
        ("poison_message", "worker_crashed")
    }
