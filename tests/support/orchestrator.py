"""Orchestrator harness: its use cases on in-memory queues, for unit and integration tests."""

from __future__ import annotations

import uuid
from typing import Any

from indexmill.chunking.worker import ChunkBatch, ChunkDocuments
from indexmill.contracts.http_actions import ReplayRequest, RetryReport, RetryRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import MAX_URLS, Job, SubmitRequest, SubmitResponse
from indexmill.contracts.messages import (
    ChunkTask,
    StageResult,
    read,
)
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.results.apply import ApplyResults, Recorder
from indexmill.orchestrator.results.decide import Decider
from indexmill.orchestrator.store.actions import Original
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.consumer.deliveries import Delivery, Outcome
from indexmill.platform.observability import Observability
from tests.support.jobs import CALLER, URL, stored_job
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryProgress
from tests.twins.tokenizer import WordTokenizer
from tests.twins.uploads import InMemoryUploads


class OrchestratorHarness:
    """The Orchestrator's use cases and the chunk worker, on in-memory queues and any store."""

    def __init__(self, store: JobStore | None = None) -> None:
        """In-memory store by default. Everything is reachable, nothing submitted."""
        clock = store.clock if isinstance(store, InMemoryJobs) else None
        self.clock = clock if isinstance(clock, FrozenClock) else FrozenClock()
        self.store: JobStore = store or InMemoryJobs(self.clock)
        self.scrape, self.chunk, self.embed = InMemoryQueue(), InMemoryQueue(), InMemoryQueue()
        self.observability = Observability("test", level="ERROR")
        self.record = Recorder(self.store, Decider(self.clock), self.observability)
        self.queues = {"scraping": self.scrape, "chunking": self.chunk, "embedding": self.embed}
        self.relay = Relay(self.store, self.queues, self.record, self.observability)
        self.results = ApplyResults(self.record, self.relay)
        self.blobs = InMemoryBlobs()
        self.submit_jobs = SubmitJobs(self.store, self.relay, self.blobs, InMemoryUploads(self.blobs))
        self.cancel_job = CancelJob(self.store, self.relay, self.clock)
        self.retry_jobs = RetryJobs(self.store, self.relay)
        self.replay_jobs = ReplayJobs(self.store, self.relay)
        self.read_jobs = ReadJobs(self.store, InMemoryProgress(self.clock), clock=self.clock)
        self.chunking_paused = False
        """Leave messages in the chunk queue."""

    def submit(self, url: str | None = None, ctx: CallerContext = CALLER) -> str:
        """Submit one URL, one of its own if none is given, and return its job's id."""
        url = url or f"{URL}/{uuid.uuid4()}"
        return self.submit_jobs(ctx, SubmitRequest(url=url, corpus_name="docs"), "req-1").job_id

    def submit_many(self, count: int, ctx: CallerContext = CALLER) -> list[str]:
        """Submit that many URLs, as many at once as a request takes, and return their jobs' ids."""
        ids = list[str]()
        while len(ids) < count:
            urls = [f"{URL}/{uuid.uuid4()}" for _ in range(min(count - len(ids), MAX_URLS))]
            ids += self.submit_jobs(ctx, SubmitRequest(urls=urls, corpus_name="docs"), "req-1").job_ids
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

    def send(self, key: str | None = None, ctx: CallerContext = CALLER, **request: Any) -> SubmitResponse:
        """Submit a request as it comes over HTTP."""
        return self.submit_jobs(ctx, SubmitRequest.model_validate(request), "req-1", key)

    def job(self, job_id: str, ctx: CallerContext = CALLER) -> Job:
        """Return a job."""
        job = stored_job(self.store, ctx.caller_id, job_id)
        assert job is not None
        return job

    def original(self, job_id: str) -> Original:
        """Return a job with what a replay needs."""
        found = self.store.read(lambda tx: tx.original(CALLER.caller_id, job_id))
        assert found is not None
        return found

    def cancel(self, job_id: str, ctx: CallerContext = CALLER) -> Job:
        """Cancel a job."""
        return self.cancel_job(ctx, job_id, "not wanted")

    def retry_all(self, **request: Any) -> RetryReport:
        """Retry what matches."""
        return self.retry_jobs.every(CALLER, RetryRequest.model_validate(request))

    def replay(self, job_id: str, **request: Any) -> Job:
        """Replay a job."""
        return self.replay_jobs.replay(CALLER, job_id, ReplayRequest.model_validate(request), "req-2")
