"""The worker's use case on the real semantics of the index: what it publishes is what is found."""

from __future__ import annotations

from indexmill.contracts.messages import EmbedTask, StageResult, read
from indexmill.embedding.ports import Hit
from indexmill.embedding.worker import EmbedBatch
from indexmill.platform.consumer.deliveries import Delivery, Done
from tests.support.embed_tasks import embed_task
from tests.support.index_builders import results
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue
from tests.twins.vector_cache import InMemoryVectorCache
from tests.twins.vector_index import InMemoryVectorIndex


class Harness:
    def __init__(self) -> None:
        self.index, self.embedder = InMemoryVectorIndex(), HashEmbedder()
        self.callbacks, self.clock = InMemoryQueue(), FrozenClock()
        self.embed = EmbedBatch(
            self.index, self.embedder, InMemoryBlobs(), self.callbacks, InMemoryVectorCache(), self.clock
        )

    def run(self, *tasks: EmbedTask) -> list[bool | None]:
        outcomes = self.embed([Delivery(task, 1, self.clock.monotonic() + 60) for task in tasks])
        assert outcomes == [Done()] * len(tasks)
        results = [read(StageResult, body) for body in self.callbacks.bodies[-len(tasks) :]]
        return [result.embedded.published if result.embedded else None for result in results]

    def nearest(self, key: str, text: str) -> Hit:
        [vector] = self.embedder.embed([text], timeout_s=1)
        found = results(self.index, None, vector, 1, key=key, space=self.embedder.space)
        return found[0][0]


def test_what_was_embedded_is_found_by_its_own_vector() -> None:
    harness = Harness()
    tasks = [embed_task(name, f"{name} one", f"{name} two") for name in ("a", "b")]

    assert harness.run(*tasks) == [True, True]
    hit = harness.nearest(tasks[0].target.corpus_key, "b two")
    assert (hit.text, hit.source_url, hit.title, hit.ordinal) == ("b two", "https://site.example/b", "b", 1)
    assert hit.document_id == tasks[1].target.document_id


def test_an_older_generation_changes_nothing_and_is_reported_as_not_published() -> None:
    harness = Harness()
    newer, older = embed_task("a", "new text", generation=5), embed_task("a", "old text", generation=4)

    assert harness.run(newer) == [True]
    assert harness.run(older) == [False]
    assert harness.nearest(newer.target.corpus_key, "old text").text == "new text"


def test_a_redelivered_message_embeds_nothing_again() -> None:
    harness = Harness()
    task = embed_task("a", "one", "two")

    assert harness.run(task) == [True]
    assert harness.run(task) == [True]
    assert len(harness.embedder.calls) == 1


def test_text_that_repeats_inside_a_document_is_kept_each_time() -> None:
    harness = Harness()
    task = embed_task("a", "same", "same", "same")

    assert harness.run(task) == [True]
    [vector] = harness.embedder.embed(["same"], timeout_s=1)
    hits = results(harness.index, None, vector, key=task.target.corpus_key, space=harness.embedder.space)
    assert sorted(hit.ordinal for hit, _ in hits) == [0, 1, 2]
