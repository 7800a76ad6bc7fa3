"""Builders of jobs and results, and the Orchestrator on twins."""

from __future__ import annotations

import uuid
from typing import Any

from indexmill.chunking.chunk import ChunkDocuments
from indexmill.chunking.worker import ChunkBatch
from indexmill.contracts.content import Chunk, Document
from indexmill.contracts.http_jobs import MAX_URLS, SubmitRequest
from indexmill.contracts.identity import CallerContext, corpus_key, document_id
from indexmill.contracts.job import Job
from indexmill.contracts.messages import (
    Chunked,
    ChunkTask,
    Embedded,
    ScrapeTask,
    StageFailure,
    StageResult,
    Target,
    read,
    stage_result,
    write,
)
from indexmill.orchestrator.admission.admit import admit
from indexmill.orchestrator.changes import apply_results
from indexmill.orchestrator.job_store import JobStore, JobsTx
from indexmill.orchestrator.ports import Change, JobFilter, JobState, NewJob, OutboxRow
from indexmill.orchestrator.queries.jobs import with_waiting
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.results import Decider, Recorder, ResultBatch
from indexmill.orchestrator.submission.submit import Accepted, SubmitJobs, accept_jobs
from indexmill.platform.consumer.deliveries import Delivery, Outcome
from indexmill.platform.observability import Observability
from indexmill.platform.time.clock import Clock
from indexmill.testing.blobs import InMemoryBlobs
from indexmill.testing.clock import FrozenClock
from indexmill.testing.jobs import InMemoryJobs
from indexmill.testing.queues import InMemoryQueue
from indexmill.testing.tokenizer import WordTokenizer

CALLER = CallerContext(caller_id="0123456789abcdef")
INTERNAL = CallerContext(caller_id="feedfeedfeedfeed", internal=True)
URL = "https://example.com/a"


def new_job(url: str = URL, caller_id: str = CALLER.caller_id, corpus: str = "docs", **more: Any) -> NewJob:
    """Return a job that was never submitted before."""
    key, job_id, message_id = corpus_key(caller_id, corpus), str(uuid.uuid4()), str(uuid.uuid4())
    target = Target(
        caller_id=caller_id, corpus_name=corpus, corpus_key=key, document_id=document_id(key, url), url=url
    )
    task = ScrapeTask(message_id=message_id, job_id=job_id, url=url)
    row = OutboxRow(message_id, job_id, 1, "scraping", write(task))
    return NewJob(job_id, target, url, more.pop("batch_id", None), row, **more)


def scraped(job_id: str, attempt: int = 1, text: str = "# Title\n\nSome words.") -> StageResult:
    """Return a successful scrape."""
    document = Document(
        url=URL, final_url=URL, title="Title", content_type="text/html", text=text, content_sha256="0" * 64
    )
    return stage_result(
        message_id=str(uuid.uuid4()),
        job_id=job_id,
        attempt=attempt,
        stage="scraping",
        status="success",
        document=document,
    )


def chunked(job_id: str, attempt: int = 1, text: str = "Some words.", *, chunk_count: int = 1) -> StageResult:
    """Return a successful chunking; with more chunks than one only the count is given."""
    chunk = Chunk(ordinal=0, text=text, start=0, end=len(text), tokens=2)
    return stage_result(
        message_id=str(uuid.uuid4()),
        job_id=job_id,
        attempt=attempt,
        stage="chunking",
        status="success",
        chunked=Chunked(chunks=[chunk], chunk_count=chunk_count),
    )


def embedded(
    job_id: str,
    attempt: int = 1,
    chunk_count: int = 1,
    *,
    published: bool = True,
    superseded: bool = False,
) -> StageResult:
    """Return a successful embed stage."""
    made = Embedded(
        chunk_count=chunk_count,
        embedded=chunk_count,
        model="m",
        dimension=4,
        published=published,
        superseded=superseded,
    )
    return stage_result(
        message_id=str(uuid.uuid4()),
        job_id=job_id,
        attempt=attempt,
        stage="embedding",
        status="success",
        embedded=made,
    )


def failed(job_id: str, stage: str = "scraping", code: str = "http_403", attempt: int = 1) -> StageResult:
    """Return a failure report."""
    return stage_result(
        message_id=str(uuid.uuid4()),
        job_id=job_id,
        attempt=attempt,
        stage=stage,
        status="failed",
        failure=StageFailure(code=code, message="It did not work.", tries=1),
    )


def submitted(store: JobStore, *jobs: NewJob) -> tuple[list[Accepted], list[OutboxRow]]:
    """Submit jobs of one caller; return the result for each, and the messages of those that were admitted."""

    def work(tx: JobsTx) -> tuple[list[Accepted], list[OutboxRow]]:
        return accept_jobs(tx, jobs), admit(tx, [jobs[0].target.caller_id])

    return store.transaction(work)


def applied(store: JobStore, *results: StageResult, clock: Clock | None = None) -> list[Change]:
    """Apply results and return what they changed."""
    return store.transaction(lambda tx: apply_results(tx, results, Decider(clock or FrozenClock())))


def found_jobs(store: JobStore, wanted: JobFilter) -> list[Job]:
    """Return the jobs that match, with what the pending ones wait for."""
    return store.read(lambda tx: with_waiting(tx, wanted.caller_id, tx.find_jobs(wanted)))


def state_of(store: JobStore, job_id: str) -> JobState | None:
    """Return any caller's job as decisions see it."""
    return store.read(lambda tx: tx.state(job_id))


def stored_job(store: JobStore, caller_id: str, job_id: str) -> Job | None:
    """Return a caller's job, or None."""

    def work(tx: JobsTx) -> Job | None:
        job = tx.job(caller_id, job_id)
        return with_waiting(tx, caller_id, [job])[0] if job else None

    return store.read(work)


class Pipeline:
    """The Orchestrator's use cases on twins, or on a real store."""

    def __init__(self, store: JobStore | None = None) -> None:
        """Everything reachable, nothing submitted."""
        clock = store.clock if isinstance(store, InMemoryJobs) else None
        self.clock = clock if isinstance(clock, FrozenClock) else FrozenClock()
        self.store: JobStore = store or InMemoryJobs(self.clock)
        self.scrape, self.chunk, self.embed = InMemoryQueue(), InMemoryQueue(), InMemoryQueue()
        self.observability = Observability("test", level="ERROR")
        self.record = Recorder(self.store, Decider(self.clock), self.observability)
        self.queues = {"scraping": self.scrape, "chunking": self.chunk, "embedding": self.embed}
        self.relay = Relay(self.store, self.queues, self.record)
        self.results = ResultBatch(self.record, self.relay)
        self.chunking_paused = False
        """Leave messages in the chunk queue."""

    def submit(self, url: str | None = None, ctx: CallerContext = CALLER) -> str:
        """Submit one URL, one of its own if none is given, and return its job's id."""
        use_case = SubmitJobs(self.store, self.relay)
        url = url or f"{URL}/{uuid.uuid4()}"
        return use_case(ctx, SubmitRequest(url=url, corpus_name="docs"), "req-1").job_id

    def submit_many(self, count: int, ctx: CallerContext = CALLER) -> list[str]:
        """Submit that many URLs, as many at once as a request takes, and return their jobs' ids."""
        use_case, ids = SubmitJobs(self.store, self.relay), list[str]()
        while len(ids) < count:
            urls = [f"{URL}/{uuid.uuid4()}" for _ in range(min(count - len(ids), MAX_URLS))]
            ids += use_case(ctx, SubmitRequest(urls=urls, corpus_name="docs"), "req-1").job_ids
        return ids

    def deliver(self, *results: StageResult, receive_count: int = 1) -> list[Outcome]:
        """Deliver results as the callback queue would, and let the chunk worker empty its queue."""
        outcomes = self.results([Delivery(result, receive_count, 1e9) for result in results])
        if not self.chunking_paused:
            self.chunk_all()
        return outcomes

    def chunk_all(self) -> None:
        """Let the chunk worker handle what is in its queue, and apply its results."""
        bodies, self.chunk.bodies = self.chunk.bodies, []
        callbacks = InMemoryQueue()
        worker = ChunkBatch(ChunkDocuments(WordTokenizer(), InMemoryBlobs()), callbacks, self.clock)
        worker([Delivery(read(ChunkTask, body), 1, 1e9) for body in bodies])
        self.results([Delivery(read(StageResult, body), 1, 1e9) for body in callbacks.bodies])

    def status(self, job_id: str, ctx: CallerContext = CALLER) -> str:
        """Return the job's status."""
        job = stored_job(self.store, ctx.caller_id, job_id)
        assert job is not None
        return job.status.value
