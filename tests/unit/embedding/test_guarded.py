"""An open breaker makes embed work wait; no try is counted, and a successful probe resumes it."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import ErrorCode, PermanentError, Refused, TransientError
from indexmill.contracts.messages import EmbedTask
from indexmill.embedding.settings import EmbeddingWorkerSettings
from indexmill.embedding.wiring import build_batch
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Retry, Wait
from tests.support.embed_tasks import RecordingIndex, embed_task
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryBreakers
from tests.twins.vector_cache import InMemoryVectorCache

UNAVAILABLE = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away")
DOWN = TransientError(ErrorCode.SEARCH_UNAVAILABLE, "down")


class Harness:
    """The worker as it is wired, on twins."""

    def __init__(self) -> None:
        self.index, self.embedder, self.callbacks = RecordingIndex(), HashEmbedder(), InMemoryQueue()
        self.breakers, self.clock = InMemoryBreakers(), FrozenClock()
        settings = EmbeddingWorkerSettings(
            database_url="postgresql://nobody@127.0.0.1:1/none",
            embedding_base_url="http://127.0.0.1:1/v1",
            embedding_model="m",
            embedding_dimension=8,
            embed_queue_url="x",
            embed_dlq_url="x",
            callbacks_queue_url="x",
            bucket_name="x",
            state_table="x",
        )
        self.worker = build_batch(
            settings,
            index=self.index,
            embedder=self.embedder,
            blobs=InMemoryBlobs(),
            callbacks=self.callbacks,
            breakers=self.breakers,
            vector_cache=InMemoryVectorCache(),
            clock=self.clock,
        )

    def run(self, *tasks: EmbedTask, tries: int = 1) -> list[Outcome]:
        deadline = self.clock.monotonic() + 60
        return self.worker([Delivery(task, tries, deadline, tries=tries) for task in tasks])

    def phase(self, name: str) -> str:
        return self.breakers.read()[name].phase(self.clock.now().timestamp())


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_an_outage_of_the_endpoint_burns_two_tries_and_then_none(harness: Harness) -> None:
    harness.embedder.fail_on = {"text": UNAVAILABLE}
    kinds = [type(harness.run(embed_task("a"), tries=5)[0]) for _ in range(6)]
    assert kinds == [Retry, Retry, Wait, Wait, Wait, Wait]
    assert len(harness.embedder.calls) == 3
    assert (harness.phase("embedding"), harness.phase("index")) == ("open", "closed")
    assert all('"status":"retrying"' in body for body in harness.callbacks.bodies)


def test_the_last_try_of_a_job_is_not_spent_on_an_open_breaker(harness: Harness) -> None:
    harness.embedder.fail_on = {"text": UNAVAILABLE}
    for _ in range(3):
        harness.run(embed_task("a"))
    (outcome,) = harness.run(embed_task("b"), tries=6)
    assert outcome == Wait(30.0, "embedding_unavailable")


def test_when_the_endpoint_is_back_one_probe_closes_the_breaker(harness: Harness) -> None:
    harness.embedder.fail_on = {"text": UNAVAILABLE}
    for _ in range(3):
        harness.run(embed_task("a"))
    harness.embedder.fail_on = {}
    harness.clock.tick(30)
    assert harness.run(embed_task("a"), embed_task("b")) == [Done(), Done()]
    assert harness.phase("embedding") == "closed"


def test_an_endpoint_that_refuses_us_opens_it_at_once_and_no_try_is_counted(harness: Harness) -> None:
    harness.embedder.fail_on = {"text": Refused(ErrorCode.EMBEDDING_UNAVAILABLE, "It refuses us (HTTP 401).")}
    assert harness.run(embed_task("a"), tries=6) == [Wait(30.0, "embedding_unavailable")]
    assert harness.phase("embedding") == "open"
    assert harness.run(embed_task("b"), tries=6) == [Wait(30.0, "embedding_unavailable")]
    assert len(harness.embedder.calls) == 1


def test_three_days_of_refusals_count_no_try_and_are_one_outage(harness: Harness) -> None:
    harness.embedder.fail_on = {"text": Refused(ErrorCode.EMBEDDING_UNAVAILABLE, "It refuses us (HTTP 401).")}
    probes, opened = 3 * 24 * 12, set()
    for _ in range(probes):
        (outcome,) = harness.run(embed_task("a"), tries=6)
        assert isinstance(outcome, Wait)
        state = harness.breakers.read()["embedding"]
        opened.add((state.opened_at, state.refusal))
        harness.clock.tick(300)
    assert (len(opened), len(harness.embedder.calls)) == (1, probes)
    assert not any('"status":"failed"' in body for body in harness.callbacks.bodies)
    harness.embedder.fail_on = {}
    assert harness.run(embed_task("a"), tries=6) == [Done()]


@pytest.mark.parametrize("code", [ErrorCode.TOKEN_LIMIT_EXCEEDED, ErrorCode.EMBEDDING_REJECTED])
def test_documents_that_are_refused_leave_it_closed(harness: Harness, code: ErrorCode) -> None:
    harness.embedder.fail_on = {"bad": PermanentError(code, "no")}
    harness.run(*(embed_task(f"d{at}", "bad") for at in range(5)))
    assert harness.phase("embedding") == "closed"
    assert harness.run(embed_task("a")) == [Done()]


def test_an_unavailable_index_opens_its_breaker_and_the_model_is_not_called(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> set[str]:
        raise DOWN

    with monkeypatch.context() as broken:
        broken.setattr(harness.index, "stored", down)
        for _ in range(3):
            harness.run(embed_task("a"))
    assert harness.run(embed_task("a"), tries=6) == [Wait(30.0, "search_unavailable")]
    assert (harness.phase("embedding"), harness.phase("index")) == ("closed", "open")
    assert harness.embedder.calls == []
    harness.clock.tick(30)
    assert harness.run(embed_task("a"), tries=6) == [Done()]


@pytest.mark.fault("F44")
@pytest.mark.parametrize("code", ["openai_rate_limit", "embedding_unavailable"])
@pytest.mark.parametrize("tries", [1, 6])
def test_a_pause_that_the_endpoint_asks_for_counts_no_try(harness: Harness, code: str, tries: int) -> None:
    harness.embedder.fail_on = {"text": TransientError(code, "slow", retry_after=3600)}
    assert harness.run(embed_task("a"), tries=tries) == [Wait(3600, code)]
    assert '"status":"retrying"' in harness.callbacks.bodies[0]
    assert f'"tries":{tries - 1},' in harness.callbacks.bodies[0]
    assert f'"message_id":"m-a:retrying:{tries}"' in harness.callbacks.bodies[0]


def test_success_costs_no_look_at_the_shared_state(harness: Harness) -> None:
    for at in range(20):
        harness.run(embed_task(f"d{at}"))
        harness.clock.tick(1)
    assert (harness.breakers.reads, harness.breakers.writes) == (2, 0)
