"""The embed worker's use case with its twins."""

from __future__ import annotations

from indexmill.contracts.messages import EmbedTask, StageResult, read
from indexmill.embedding.worker import EmbedBatch
from indexmill.platform.consumer.deliveries import Delivery, Outcome
from tests.support.embed_tasks import RecordingIndex
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue
from tests.twins.vector_cache import InMemoryVectorCache


class EmbedHarness:
    """The use case with its twins."""

    def __init__(self) -> None:
        self.index = RecordingIndex()
        self.embedder = HashEmbedder()
        self.blobs = InMemoryBlobs()
        self.callbacks = InMemoryQueue()
        self.vector_cache = InMemoryVectorCache()
        self.clock = FrozenClock()
        self.embed = EmbedBatch(
            self.index, self.embedder, self.blobs, self.callbacks, self.vector_cache, self.clock
        )

    def run(
        self,
        *tasks: EmbedTask,
        tries: int = 1,
        receive_count: int = 1,
        crashes: int = 0,
        last_error: str | None = None,
        seconds: float = 60,
    ) -> list[Outcome]:
        deadline = self.clock.monotonic() + seconds
        return self.embed(
            [Delivery(task, receive_count, deadline, tries, crashes, last_error) for task in tasks]
        )

    @property
    def results(self) -> list[StageResult]:
        """Return the results that were sent."""
        return [read(StageResult, body) for body in self.callbacks.bodies]
