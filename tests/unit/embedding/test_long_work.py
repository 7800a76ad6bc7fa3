"""Progress of a long document, reported while it is embedded; short ones cost nothing."""

from __future__ import annotations

import pytest

from indexmill.contracts.content import Chunk
from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.messages import EmbedTask, Target
from indexmill.embedding.documents import Work
from indexmill.embedding.worker import Slices, progress_callback
from indexmill.platform.consumer.deliveries import Done
from indexmill.platform.progress import LONG_CHUNKS, WorkProgress
from tests.support.embed_tasks import embed_task
from tests.support.embed_worker import EmbedHarness
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.state_table import InMemoryProgress

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

    def embed(self, *works: Work, done: frozenset[str] = frozenset()) -> IndexmillError | None:
        texts = {key: text for each in works for key, text in each.missing(set(done)).items()}
        on_step = progress_callback(works, texts, self.board)
        vectors, stopped = Slices(self.embedder, self.clock).embed(texts, timeout_s=60, on_step=on_step)
        assert stopped is not None or vectors.keys() == texts.keys()
        return stopped

    def reported(self) -> list[tuple[str, int, int]]:
        return [(job, each.chunks_done, each.bytes) for job, each in self.board.put_items]


def test_a_long_document_reports_after_each_step_but_the_last() -> None:
    worker = Worker()
    worker.embed(work("long", 2 * LONG_CHUNKS + 1, attempt=3))
    assert worker.reported() == [("long", 256, 256 * 9), ("long", 512, 512 * 9)]
    assert worker.board.put_items[0][1] == WorkProgress(3, 513, 256, 256 * 9)
    assert [len(call) for call in worker.embedder.calls] == [256, 256, 1]


@pytest.mark.parametrize("job", [True, False])
def test_short_documents_and_those_of_no_job_show_no_progress(job: bool) -> None:
    worker = Worker()
    worker.embed(*(work(f"d{at}", LONG_CHUNKS if job else 300, job) for at in range(3)))
    assert worker.reported() == []


def test_without_a_board_no_progress_is_shown() -> None:
    long = work("long", 600)
    assert progress_callback([long], long.missing(set()), None) is None


def test_only_the_long_ones_of_a_group_show_progress() -> None:
    worker = Worker()
    worker.embed(work("short", 100), work("long", 300))
    assert worker.reported() == [("long", 156, 156 * 9)]
    assert [len(call) for call in worker.embedder.calls] == [256, 144]


def test_what_is_there_already_counts_as_done() -> None:
    worker = Worker()
    long = work("long", 600)
    worker.embed(long, done=frozenset(long.ids[:300]))
    assert worker.reported() == [("long", 556, 556 * 9)]
    worker.board.put_items.clear()
    worker.embed(long, done=frozenset(long.ids[:500]))
    assert worker.reported() == []


def test_the_same_text_twice_is_done_at_once() -> None:
    worker = Worker()
    long, same = work("long", 300), work("same", 300)
    same.chunks[0] = same.chunks[0].model_copy(update={"text": long.chunks[0].text})
    worker.embed(long, Work(0, same.task, same.chunks))
    assert worker.reported()[:2] == [("long", 256, 256 * 9), ("same", 1, 9)]


def test_a_step_that_fails_ends_the_try_and_the_telling() -> None:
    worker = Worker()
    worker.embedder.fail_on["long-0300"] = TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "Away.")
    assert worker.embed(work("long", 800)) is not None
    assert worker.reported() == [("long", 256, 256 * 9)]


def test_the_worker_tells_its_board() -> None:
    harness = EmbedHarness()
    board = harness.embed.board = InMemoryProgress(FrozenClock())
    texts = [f"text {at}" for at in range(300)]
    assert harness.run(embed_task("short", "one"), embed_task("long", *texts)) == [Done()] * 2
    assert [(job, each.chunks_total, each.chunks_done) for job, each in board.put_items] == [
        ("j-long", 300, 255)
    ]
