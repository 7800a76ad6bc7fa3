"""How far a long document is, told while it is embedded; short ones cost nothing."""

from __future__ import annotations

import pytest

from indexmill.contracts.content import Chunk
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import EmbedTask, Target
from indexmill.embedding.long_work import Steps
from indexmill.embedding.vectors import vectors_of
from indexmill.embedding.work import Work
from indexmill.platform.progress import LONG_CHUNKS, WorkProgress
from indexmill.testing.clock import FrozenClock
from indexmill.testing.embedder import HashEmbedder
from indexmill.testing.progress import InMemoryProgress

TARGET = Target(
    caller_id="c", corpus_name="docs", corpus_key="k", document_id="d", url="https://example.com/a"
)


def work(name: str, chunks: int, job: bool = True, attempt: int = 1) -> Work:
    made = [Chunk(ordinal=at, text=f"{name}-{at:04}", start=0, end=1, tokens=1) for at in range(chunks)]
    target = TARGET.model_copy(update={"document_id": name})
    task = EmbedTask(
        message_id=name,
        job_id=name if job else None,
        attempt=attempt,
        target=target,
        generation=1,
        chunks=made,
        chunk_count=chunks,
    )
    return Work(0, task, made)


class Worker:
    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.board = InMemoryProgress(self.clock)
        self.embedder = HashEmbedder()

    def embed(self, *works: Work, stored: frozenset[str] = frozenset()) -> None:
        texts = {key: text for each in works for key, text in each.missing(set(stored)).items()}
        steps = Steps(self.embedder, self.board, self.clock)
        found = steps.vectors(works, texts, timeout_s=60)
        assert found == vectors_of(HashEmbedder(), texts, timeout_s=1)

    def told(self) -> list[tuple[str, int, int]]:
        return [(job, each.chunks_done, each.bytes) for job, each in self.board.writes]


def test_a_long_document_tells_after_each_step_but_the_last() -> None:
    worker = Worker()
    worker.embed(work("long", 2 * LONG_CHUNKS + 1, attempt=3))
    assert worker.told() == [("long", 256, 256 * 9), ("long", 512, 512 * 9)]
    assert worker.board.writes[0][1] == WorkProgress(3, 513, 256, 256 * 9)
    assert [len(call) for call in worker.embedder.calls] == [256, 256, 1]


@pytest.mark.parametrize("job", [True, False])
def test_short_documents_and_those_of_no_job_are_one_call_and_no_word(job: bool) -> None:
    worker = Worker()
    worker.embed(*(work(f"d{at}", LONG_CHUNKS if job else 300, job) for at in range(3)))
    assert (len(worker.embedder.calls), worker.told()) == (1, [])


def test_only_the_long_ones_of_a_group_are_told_of() -> None:
    worker = Worker()
    worker.embed(work("short", 100), work("long", 300))
    assert worker.told() == [("long", 156, 156 * 9)]


def test_what_the_index_has_already_counts_as_done() -> None:
    worker = Worker()
    long = work("long", 600)
    worker.embed(long, stored=frozenset(long.ids[:300]))
    assert worker.told() == [("long", 556, 556 * 9)]
    worker.board.writes.clear()
    worker.embed(long, stored=frozenset(long.ids[:500]))
    assert worker.told() == []


def test_all_steps_share_the_time_there_is() -> None:
    worker = Worker()
    original = worker.board.put

    def slow(job_id: str, progress: WorkProgress) -> None:
        worker.clock.tick(25)
        original(job_id, progress)

    worker.board.put = slow  # type: ignore[method-assign]
    worker.embed(work("long", 4 * LONG_CHUNKS))
    assert worker.embedder.timeouts == [60, 35, 10, 0]


def test_a_failing_step_ends_the_try() -> None:
    worker = Worker()
    worker.embedder.fail_on["long-0300"] = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "Away.")
    with pytest.raises(TransientError):
        worker.embed(work("long", 800))
    assert worker.told() == [("long", 256, 256 * 9)]
