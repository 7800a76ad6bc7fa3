from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from indexmill.contracts.content import CHUNK_LIST, BlobRef, Chunk
from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.contracts.messages import Embedded, EmbedTask, UnreadableMessage, read, write
from indexmill.platform.consumer.deliveries import Done, Poison, Retry, Wait
from tests.support.embed_tasks import embed_task
from tests.support.embed_worker import EmbedHarness

RATE_LIMIT = TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down", retry_after=40)
TOO_LONG = PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "too long")


@pytest.fixture
def harness() -> EmbedHarness:
    return EmbedHarness()


def test_a_batch_is_embedded_published_and_reported_in_one_go_each(harness: EmbedHarness) -> None:
    tasks = [embed_task(f"d{at}", "shared", f"own {at}") for at in range(10)]

    assert harness.run(*tasks) == [Done()] * 10

    assert harness.index.stored_calls == 1
    assert len(harness.embedder.calls) == 1
    assert sorted(harness.embedder.calls[0]) == sorted(["shared", *(f"own {at}" for at in range(10))])
    assert [len(call) for call in harness.index.published] == [10]
    assert [result.job_id for result in harness.results] == [task.job_id for task in tasks]


def test_a_success_tells_what_was_done(harness: EmbedHarness) -> None:
    harness.run(embed_task("a", "one", "two", "one"))

    [result] = harness.results
    assert (result.message_id, result.job_id, result.attempt) == ("m-a:result", "j-a", 2)
    assert (result.request_id, result.tries) == ("r-1", 1)
    assert (result.stage, result.status, result.failure) == ("embedding", "success", None)
    assert result.embedded is not None
    assert result.embedded.model_dump() == {
        "chunk_count": 3, "embedded": 2, "model": "hash", "dimension": 8, "published": True,
        "superseded": False, "removed": 0, "searchable_at": None,
    }  # fmt: skip
    assert harness.embedder.calls == [["one", "two"]]


def test_known_chunks_are_not_embedded_again(harness: EmbedHarness) -> None:
    harness.run(embed_task("a", "one", "two"))
    harness.run(embed_task("a", "one", "two", "three", generation=2))
    harness.run(embed_task("a", "two", generation=3))

    assert harness.embedder.calls == [["one", "two"], ["three"]]
    assert [result.embedded.embedded for result in harness.results if result.embedded] == [2, 1, 0]
    assert [len(version.vectors) for call in harness.index.published for version in call] == [2, 1, 0]


@pytest.mark.shows("X2")
def test_a_text_that_the_corpus_has_is_not_paid_for_again(harness: EmbedHarness) -> None:
    harness.run(embed_task("a", "one", "two"), embed_task("b", "two", "three", "two"))
    harness.index.known_texts["one"] = [1.0, *[0.0] * 7]
    harness.run(embed_task("c", "one", "four"))

    assert harness.embedder.calls == [["one", "two", "three"], ["four"]]
    assert [result.embedded.embedded for result in harness.results if result.embedded] == [2, 1, 1]
    assert [result.spent.chunks_embedded for result in harness.results if result.spent] == [2, 1, 1]
    assert len(harness.index.published[-1][0].vectors) == 2


def test_the_context_is_embedded_with_the_text(harness: EmbedHarness) -> None:
    task = embed_task("a", "text")
    assert task.chunks
    task.chunks[0].context = "Title > Part"
    harness.run(task)

    assert harness.embedder.calls == [["Title > Part\n\ntext"]]


def test_chunks_by_reference_are_fetched(harness: EmbedHarness) -> None:
    task = embed_task("a", "one", "two")
    data = TypeAdapter(list[Chunk]).dump_json(task.chunks or [])
    ref = harness.blobs.put(data, kind="chunks", content_type="application/json")

    assert harness.run(task.model_copy(update={"chunks": None, "chunks_ref": ref})) == [Done()]
    assert harness.index.published[0][0].chunks == task.chunks


def test_a_newer_version_that_is_already_there_is_a_success(harness: EmbedHarness) -> None:
    harness.index.stale = {"a"}
    harness.run(embed_task("a"), embed_task("b"))

    made = [result.embedded for result in harness.results if result.embedded]
    assert [(one.published, one.superseded) for one in made] == [(False, True), (True, False)]


def test_without_a_job_the_work_is_done_and_no_result_sent(harness: EmbedHarness) -> None:
    assert harness.run(embed_task("a", job=False)) == [Done()]
    assert harness.index.titles == ["a"]
    assert harness.callbacks.bodies == []


def test_without_a_job_a_failure_becomes_a_dead_letter(harness: EmbedHarness) -> None:
    harness.embedder.fail_on = {"bad": TOO_LONG}

    outcomes = harness.run(embed_task("a", "bad", job=False), embed_task("b"))

    assert outcomes == [Poison("token_limit_exceeded"), Done()]


def test_a_transient_error_gives_all_messages_back_and_honours_what_was_asked_for(
    harness: EmbedHarness,
) -> None:
    harness.embedder.fail_next = [RATE_LIMIT]

    outcomes = harness.run(embed_task("a"), embed_task("b"), tries=3)

    assert outcomes == [Wait(40, "openai_rate_limit")] * 2
    assert len(harness.embedder.calls) == 1


@pytest.mark.parametrize("tries", [1, 5])
def test_waits_grow_by_tries_and_stay_below_their_ceiling(harness: EmbedHarness, tries: int) -> None:
    harness.embedder.fail_next = [TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away")]

    [outcome] = harness.run(embed_task("a"), tries=tries)

    assert isinstance(outcome, Retry)
    assert 0 <= outcome.after_s <= 2 ** (tries - 1)


def test_the_sixth_try_is_the_last(harness: EmbedHarness) -> None:
    harness.embedder.fail_next = [TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down")]

    assert harness.run(embed_task("a"), tries=6) == [Done()]

    [result] = harness.results
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.model_dump(exclude_none=True) == {
        "code": "max_retries_exceeded", "message": "Embedding failed after 5 retries",
        "cause": "openai_rate_limit", "tries": 6,
    }  # fmt: skip


@pytest.mark.fault("F46")
def test_a_permanent_error_fails_only_the_document_that_caused_it(harness: EmbedHarness) -> None:
    harness.embedder.fail_on = {"bad": TOO_LONG}

    assert harness.run(embed_task("a"), embed_task("b", "bad"), embed_task("c")) == [Done()] * 3

    assert [result.failure.code if result.failure else None for result in harness.results] == [
        None, "token_limit_exceeded", None,
    ]  # fmt: skip
    assert harness.results[1].failure is not None
    assert harness.results[1].failure.tries == 1
    assert harness.index.titles == ["a", "c"]


def test_a_vector_that_the_index_refuses_fails_only_its_document(harness: EmbedHarness) -> None:
    harness.index.fail_on = {"b": PermanentError(ErrorCode.VECTOR_REJECTED, "no")}
    harness.run(embed_task("a"), embed_task("b"), embed_task("c"))

    assert [result.status for result in harness.results] == ["success", "failed", "success"]


def test_a_document_with_invalid_vectors_is_tried_again_without_its_neighbours(
    harness: EmbedHarness,
) -> None:
    harness.embedder.fail_on = {"bad": TransientError(ErrorCode.EMBEDDING_INVALID, "nan")}

    outcomes = harness.run(embed_task("a"), embed_task("b", "bad"))

    assert outcomes[0] == Done()
    assert isinstance(outcomes[1], Retry)
    assert harness.index.titles == ["a"]


@pytest.mark.parametrize(
    ("error", "cause"),
    [(None, "worker_crashed"), ("openai_rate_limit", "worker_crashed"), ("timed_out", "timed_out")],
)
def test_a_document_that_keeps_killing_its_worker_fails_as_poison(
    harness: EmbedHarness, error: str | None, cause: str
) -> None:
    assert harness.run(embed_task("a"), tries=5, crashes=3, last_error=error) == [Done()]

    [result] = harness.results
    assert result.failure is not None
    assert (result.failure.code, result.failure.cause) == ("poison_message", cause)
    assert result.failure.tries == 7
    assert harness.embedder.calls == []


def test_with_no_time_left_messages_go_back_untouched(harness: EmbedHarness) -> None:
    outcomes = harness.run(embed_task("a"), embed_task("b"), seconds=3)

    assert len(outcomes) == 2
    assert all(isinstance(outcome, Wait) and outcome.after_s <= 1 for outcome in outcomes)
    assert harness.embedder.calls == []


@pytest.mark.fault("F8")
def test_a_large_batch_stops_at_the_deadline_and_keeps_what_is_done(
    harness: EmbedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.embedding.worker._GROUP_CHUNKS", 3)
    publish = harness.index.publish

    def slow(versions: list[object]) -> list[bool]:
        harness.clock.tick(30)
        return publish(versions)  # type: ignore[arg-type]

    monkeypatch.setattr(harness.index, "publish", slow)
    outcomes = harness.run(*(embed_task(f"d{at}", "one", "two") for at in range(4)), seconds=60)

    assert outcomes[:2] == [Done()] * 2
    assert len(outcomes) == 4
    assert all(isinstance(outcome, Wait) and outcome.reason == "deadline" for outcome in outcomes[2:])
    assert [result.elapsed_ms for result in harness.results] == [30_000, 60_000]


def test_the_model_gets_at_most_half_the_time_that_is_left(harness: EmbedHarness) -> None:
    harness.run(embed_task("a"), seconds=50)

    assert harness.embedder.timeouts == [25]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"chunk_count": 5}, "content_corrupt"),
        ({"chunks": [], "chunk_count": 0}, "empty_content"),
        ({"chunks": None, "chunks_ref": BlobRef(key="k", size=1, sha256="0")}, "content_missing"),
    ],
)
def test_a_task_without_sound_chunks_fails_alone(
    harness: EmbedHarness, change: dict[str, object], code: str
) -> None:
    harness.run(embed_task("a").model_copy(update=change), embed_task("b"))

    by_job = {result.job_id: result.failure.code if result.failure else None for result in harness.results}
    assert by_job == {"j-a": code, "j-b": None}


def test_a_task_that_withdraws_publishes_an_empty_version_without_the_model(harness: EmbedHarness) -> None:
    harness.run(embed_task("a"))
    asked = list(harness.embedder.timeouts)
    empty = {"chunks": [], "chunk_count": 0, "withdraws": True, "generation": 99}
    assert harness.run(embed_task("a").model_copy(update=empty)) == [Done()]
    embedded = harness.results[-1].output
    assert isinstance(embedded, Embedded)
    assert (embedded.published, embedded.chunk_count) == (True, 0)
    assert harness.embedder.timeouts == asked


def test_reports_that_were_not_taken_bring_their_messages_back(harness: EmbedHarness) -> None:
    harness.callbacks.refuse = {1}

    outcomes = harness.run(embed_task("a"), embed_task("b"), embed_task("c"))

    assert [isinstance(outcome, Done) for outcome in outcomes] == [True, False, True]


def test_without_the_callback_queue_only_messages_with_a_job_are_retried(
    harness: EmbedHarness,
) -> None:
    harness.callbacks.unavailable = True

    outcomes = harness.run(embed_task("a"), embed_task("b", job=False))

    assert isinstance(outcomes[0], Wait)
    assert outcomes[1] == Done()


def test_no_messages_give_no_outcomes(harness: EmbedHarness) -> None:
    assert harness.run() == []


@pytest.mark.shows("B85")
@pytest.mark.parametrize("name", ["ordinal", "start", "end", "tokens"])
def test_a_number_larger_than_its_column_is_one_documents_failure(harness: EmbedHarness, name: str) -> None:
    """A caller could queue such a value with the release before."""
    inline, stored = embed_task("inline"), embed_task("stored")
    assert inline.chunks
    inline.chunks[0] = inline.chunks[0].model_copy(update={name: 3 * 10**9})
    with pytest.raises(UnreadableMessage):
        read(EmbedTask, write(inline))
    stored.chunks_ref = harness.blobs.put(
        CHUNK_LIST.dump_json(inline.chunks), kind="chunks", content_type="application/json"
    )
    stored.chunks = None

    assert harness.run(embed_task("good"), stored, embed_task("other")) == [Done()] * 3

    assert harness.index.titles == ["good", "other"]
    codes = [result.failure.code for result in harness.results if result.failure]
    assert codes == [ErrorCode.CONTENT_CORRUPT]


@pytest.mark.shows("B85")
@pytest.mark.parametrize("name", ["attempt", "generation", "chunk_count"])
def test_a_task_with_a_number_larger_than_its_column_is_unreadable(name: str) -> None:
    task = embed_task("a").model_copy(update={name: 2**63})
    with pytest.raises(UnreadableMessage):
        read(EmbedTask, write(task))
