"""Documents that one invocation cannot finish, batches that run out of time: nothing is paid for twice."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.embedding.ports import Vector
from indexmill.platform.consumer.deliveries import Done, Retry, Wait
from tests.support.embed_tasks import embed_task
from tests.unit.embedding.bench import Bench

AWAY = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def slow(bench: Bench, seconds: float) -> None:
    """Make every request to the model take so long."""
    quick = bench.embedder.embed

    def embed(texts: list[str], *, timeout_s: float) -> list[Vector]:
        bench.clock.tick(seconds)
        return quick(texts, timeout_s=timeout_s)

    bench.embedder.embed = embed  # type: ignore[method-assign, assignment]


def words(count: int) -> list[str]:
    return [f"chunk {at}" for at in range(count)]


def paid(bench: Bench) -> list[str]:
    """Every text that was sent to the model, as often as it was."""
    return [text for call in bench.embedder.calls for text in call]


def test_a_long_document_goes_on_where_it_stopped(bench: Bench) -> None:
    texts = words(2_000)
    task = embed_task("long", *texts)
    slow(bench, 9.0)
    outcomes = []
    for count in range(1, 10):
        outcomes += bench.run(task, receive_count=count, seconds=60)
        if outcomes[-1] == Done():
            break
    assert outcomes[:-1] == [Wait(1.0, "deadline")] * (len(outcomes) - 1)
    assert len(outcomes) > 1
    assert sorted(paid(bench)) == sorted(texts)
    (result,) = bench.results
    assert result.embedded is not None
    assert (result.embedded.embedded, result.embedded.chunk_count) == (2_000, 2_000)
    assert bench.index.titles == ["long"]


def test_a_try_that_fails_half_way_keeps_what_it_paid_for(bench: Bench) -> None:
    task = embed_task("long", *words(600))
    bench.embedder.fail_on = {"chunk 550": AWAY}
    (outcome,) = bench.run(task)
    assert isinstance(outcome, Retry)
    bench.embedder.fail_on = {}
    assert bench.run(task, tries=2, receive_count=2) == [Done()]
    assert len(paid(bench)) == 600 + 88, "the request that failed was sent again"


def test_vectors_that_could_not_be_published_are_kept(bench: Bench) -> None:
    task = embed_task("long", *words(300))
    bench.index.fail_on = {"long": TransientError(ErrorCode.SEARCH_UNAVAILABLE, "away")}
    assert isinstance(bench.run(task)[0], Retry)
    bench.index.fail_on = {}
    assert bench.run(task, tries=2, receive_count=2) == [Done()]
    assert len(paid(bench)) == 300


def test_without_the_shelf_it_is_paid_for_again_and_nothing_else_happens(bench: Bench) -> None:
    bench.shelf.away = True
    task = embed_task("long", *words(300))
    bench.embedder.fail_on = {"chunk 299": AWAY}
    bench.run(task)
    bench.embedder.fail_on = {}
    assert bench.run(task, tries=2, receive_count=2) == [Done()]


def test_short_documents_never_touch_the_shelf(bench: Bench) -> None:
    bench.embedder.fail_next = [AWAY]
    bench.run(embed_task("a"), embed_task("b"))
    bench.run(embed_task("a"), embed_task("b"), receive_count=2)
    assert bench.shelf.kept == {}


def test_what_is_complete_when_time_runs_out_is_published(bench: Bench) -> None:
    """Three of four are done: they are reported, and the fourth is done by the next delivery alone."""
    tasks = [embed_task(f"d{at}", *(f"{at} {text}" for text in words(200))) for at in range(4)]
    slow(bench, 8.0)
    outcomes = bench.run(*tasks, seconds=60)
    done = [outcome == Done() for outcome in outcomes]
    assert done == [True, True, True, False]
    assert outcomes[3] == Wait(1.0, "deadline")
    assert len(paid(bench)) == 768
    assert bench.run(tasks[3], receive_count=2) == [Done()]
    assert len(paid(bench)) <= 800 * 1.25


def test_an_error_half_way_leaves_complete_documents_published(bench: Bench) -> None:
    tasks = [embed_task(f"d{at}", *(f"{at} {text}" for text in words(200))) for at in range(3)]
    bench.embedder.fail_on = {"2 chunk 199": PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "too long")}
    assert bench.run(*tasks) == [Done()] * 3
    assert [result.status for result in bench.results] == ["success", "success", "failed"]
    assert bench.index.titles == ["d0", "d1"]
