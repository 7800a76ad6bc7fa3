"""Builders of jobs and results."""

from __future__ import annotations

import uuid
from typing import Any

from indexmill.contracts.content import CHUNKER, Chunk, Document
from indexmill.contracts.identity import CallerContext, corpus_key, document_id
from indexmill.contracts.job import Job
from indexmill.contracts.messages import (
    Chunked,
    Embedded,
    ScrapeTask,
    StageFailure,
    StageResult,
    Target,
    stage_result,
    write,
)
from indexmill.orchestrator.admission.admit import admit
from indexmill.orchestrator.queries.jobs import with_waiting
from indexmill.orchestrator.results.apply import apply_results
from indexmill.orchestrator.results.decide import Decider
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobState, NewJob, OutboxRow
from indexmill.orchestrator.submission.submit import Accepted, accept_jobs
from indexmill.platform.time import Clock
from tests.twins.clock import FrozenClock

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
        chunked=Chunked(chunks=[chunk], chunk_count=chunk_count, chunker=CHUNKER, tokenizer="t"),
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
