"""Documents that one invocation cannot finish, batches that run out of time: nothing is paid for twice."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.embedding.ports import Vector
from indexmill.platform.consumer.deliveries import Done, Retry, Wait
from tests.support.embed_tasks import embed_task
from tests.support.embed_worker import EmbedHarness

UNAVAILABLE = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away")


@pytest.fixture
def harness() -> EmbedHarness:
    return EmbedHarness()


def slow(harness: EmbedHarness, seconds: float) -> None:
    """Make every request to the model take so long."""
    quick = harness.embedder.embed

    def embed(texts: list[str], *, timeout_s: float) -> list[Vector]:
        harness.clock.tick(seconds)
        return quick(texts, timeout_s=timeout_s)

    harness.embedder.embed = embed  # type: ignore[method-assign, assignment]


def words(count: int) -> list[str]:
    return [f"chunk {at}" for at in range(count)]


def paid(harness: EmbedHarness) -> list[str]:
    """Every text that was sent to the model, as often as it was."""
    return [text for call in harness.embedder.calls for text in call]


def test_a_long_document_resumes_where_it_stopped(harness: EmbedHarness) -> None:
    texts = words(2_000)
    task = embed_task("long", *texts)
    slow(harness, 9.0)
    outcomes = []
    for count in range(1, 10):
        outcomes += harness.run(task, receive_count=count, seconds=60)
        if outcomes[-1] == Done():
            break
    assert outcomes[:-1] == [Wait(1.0, "deadline")] * (len(outcomes) - 1)
    assert len(outcomes) > 1
    assert sorted(paid(harness)) == sorted(texts)
    (result,) = harness.results
    assert result.embedded is not None
    assert (result.embedded.embedded, result.embedded.chunk_count) == (2_000, 2_000)
    assert harness.index.titles == ["long"]


def test_a_try_that_fails_half_way_keeps_what_it_paid_for(harness: EmbedHarness) -> None:
    task = embed_task("long", *words(600))
    harness.embedder.fail_on = {"chunk 550": UNAVAILABLE}
    (outcome,) = harness.run(task)
    assert isinstance(outcome, Retry)
    harness.embedder.fail_on = {}
    assert harness.run(task, tries=2, receive_count=2) == [Done()]
    assert len(paid(harness)) == 600 + 88, "the request that failed was sent again"


def test_vectors_that_could_not_be_published_are_kept(harness: EmbedHarness) -> None:
    task = embed_task("long", *words(300))
    harness.index.fail_on = {"long": TransientError(ErrorCode.SEARCH_UNAVAILABLE, "away")}
    assert isinstance(harness.run(task)[0], Retry)
    harness.index.fail_on = {}
    assert harness.run(task, tries=2, receive_count=2) == [Done()]
    assert len(paid(harness)) == 300


def test_without_the_vector_cache_it_is_embedded_again_and_nothing_else_happens(
    harness: EmbedHarness,
) -> None:
    harness.vector_cache.unavailable = True
    task = embed_task("long", *words(300))
    harness.embedder.fail_on = {"chunk 299": UNAVAILABLE}
    harness.run(task)
    harness.embedder.fail_on = {}
    assert harness.run(task, tries=2, receive_count=2) == [Done()]


def test_short_documents_never_touch_the_vector_cache(harness: EmbedHarness) -> None:
    harness.embedder.fail_next = [UNAVAILABLE]
    harness.run(embed_task("a"), embed_task("b"))
    harness.run(embed_task("a"), embed_task("b"), receive_count=2)
    assert harness.vector_cache.kept == {}


def test_what_is_complete_when_time_runs_out_is_published(harness: EmbedHarness) -> None:
    """Three of four are done: they are reported, and the fourth is done by the next delivery alone."""
    tasks = [embed_task(f"d{at}", *(f"{at} {text}" for text in words(200))) for at in range(4)]
    slow(harness, 8.0)
    outcomes = harness.run(*tasks, seconds=60)
    done = [outcome == Done() for outcome in outcomes]
    assert done == [True, True, True, False]
    assert outcomes[3] == Wait(1.0, "deadline")
    assert len(paid(harness)) == 768
    assert harness.run(tasks[3], receive_count=2) == [Done()]
    assert len(paid(harness)) <= 800 * 1.25


def test_an_error_half_way_leaves_complete_documents_published(harness: EmbedHarness) -> None:
    tasks = [embed_task(f"d{at}", *(f"{at} {text}" for text in words(200))) for at in range(3)]
    harness.embedder.fail_on = {"2 chunk 199": PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "too long")}
    assert harness.run(*tasks) == [Done()] * 3
    assert [result.status for result in harness.results] == ["success", "success", "failed"]
    assert harness.index.titles == ["d0", "d1"]
