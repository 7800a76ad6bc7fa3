"""Accept URLs: one job each, committed with its first message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_jobs import SubmitRequest, SubmitResponse
from indexmill.contracts.identity import CallerContext, corpus_key, corpus_name, document_id
from indexmill.contracts.messages import ScrapeTask, Target, write
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import JobStore, NewJob, OutboxRow
from indexmill.orchestrator.quotas import admission_tier
from indexmill.orchestrator.relay import Relay
from indexmill.platform.ids import new_id
from indexmill.platform.urls import AllowedHosts, canonical_url


@dataclass(frozen=True, slots=True)
class _Submission:
    """What the jobs of one request share."""

    caller_id: str
    corpus: str
    batch_id: str | None
    request_id: str | None
    tier: str


@dataclass(frozen=True, slots=True)
class SubmitJobs:
    """The submit use case."""

    store: JobStore
    relay: Relay
    allowed_private_hosts: AllowedHosts = frozenset()
    make_id: Callable[[], str] = new_id

    def __call__(self, ctx: CallerContext, request: SubmitRequest, request_id: str) -> SubmitResponse:
        """Accept the request's URLs; when this returns, every job is committed with its first message.

        Raises CallerError for a bad corpus name or URL, and then accepts none of them.
        """
        urls = [request.url] if request.url is not None else list(request.urls or ())
        batch_id = self.make_id() if request.urls is not None else None
        corpus, tier = corpus_name(request.corpus_name), admission_tier(ctx)
        shared = _Submission(ctx.caller_id, corpus, batch_id, request_id or None, tier)
        jobs = [self._new_job(shared, url, position) for position, url in enumerate(urls)]
        submission = self.store.submit(jobs)
        self.relay.send(submission.outbox)
        ids = [accepted.job_id for accepted in submission.accepted]
        return SubmitResponse(
            job_id=ids[0],
            url_count=len(ids),
            job_ids=ids if batch_id else None,
            batch_id=batch_id,
            expected_by=submission.expected_by,
        )

    def _new_job(self, shared: _Submission, url: str, position: int) -> NewJob:
        canonical = self._canonical(url, f"body.urls.{position}" if shared.batch_id else "body.url")
        key = corpus_key(shared.caller_id, shared.corpus)
        job_id, message_id = self.make_id(), self.make_id()
        target = Target(
            caller_id=shared.caller_id,
            corpus_name=shared.corpus,
            corpus_key=key,
            document_id=document_id(key, canonical),
            url=canonical,
        )
        task = ScrapeTask(message_id=message_id, job_id=job_id, url=canonical, request_id=shared.request_id)
        first = OutboxRow(message_id, job_id, 1, FIRST, "queue", write(task), caller_id=shared.caller_id)
        return NewJob(job_id, target, url, shared.batch_id, first, tier=shared.tier)

    def _canonical(self, url: str, field: str) -> str:
        try:
            return canonical_url(url, allowed_hosts=self.allowed_private_hosts)
        except CallerError as error:
            error.field = field
            raise
