"""Accept URLs: one job each, committed with its first message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_jobs import SubmitRequest, SubmitResponse
from indexmill.contracts.identity import CallerContext, corpus_key, corpus_name, document_id
from indexmill.contracts.messages import ScrapeTask, Target, write
from indexmill.orchestrator.idempotency import body_digest, check_key
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import Accepted, JobStore, NewJob, Once, OutboxRow
from indexmill.orchestrator.quotas import admission_tier
from indexmill.orchestrator.relay import Sender
from indexmill.platform.ids import new_id
from indexmill.platform.security.urls import AllowedHosts, canonical_url


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the jobs of one request have in common."""

    caller_id: str
    corpus: str
    batch_id: str | None
    request_id: str | None
    request: SubmitRequest
    tier: str


@dataclass(frozen=True, slots=True)
class SubmitJobs:
    """The submit use case."""

    store: JobStore
    relay: Sender
    allowed_private_hosts: AllowedHosts = frozenset()
    make_id: Callable[[], str] = new_id

    def __call__(
        self,
        ctx: CallerContext,
        request: SubmitRequest,
        request_id: str,
        idempotency_key: str | None = None,
    ) -> SubmitResponse:
        """Accept the request's URLs; when this returns, every job is committed with its first message.

        The same request under the same `idempotency_key` within a day answers as it did the first time.
        Raises CallerError for a bad corpus name, URL, dependency or key, and then accepts none of them.
        """
        key = check_key(idempotency_key) if idempotency_key is not None else None
        urls = [request.url] if request.url is not None else list(request.urls or ())
        batch_id = self.make_id() if request.urls is not None else None
        corpus, tier = corpus_name(request.corpus_name), admission_tier(ctx)
        shared = _Shared(ctx.caller_id, corpus, batch_id, request_id or None, request, tier)
        # Of jobs that stand alike the one with the lesser id starts first: the one that was named first.
        ids = sorted(self.make_id() for _ in urls)
        jobs = [self._new_job(shared, ids[position], url, position) for position, url in enumerate(urls)]

        def keep(accepted: Sequence[Accepted], by: datetime | None) -> str:
            return _response(accepted, batch_id, by).model_dump_json()

        once = Once(key, body_digest(request), keep) if key is not None else None
        submission = self.store.submit(jobs, once)
        self.relay.send(submission.outbox)
        if submission.answer is not None:
            return SubmitResponse.model_validate_json(submission.answer)
        return _response(submission.accepted, batch_id, submission.expected_by)

    def _new_job(self, shared: _Shared, job_id: str, url: str, position: int) -> NewJob:
        request = shared.request
        canonical = self._canonical(url, f"body.urls.{position}" if shared.batch_id else "body.url")
        key = corpus_key(shared.caller_id, shared.corpus)
        message_id = self.make_id()
        target = Target(
            caller_id=shared.caller_id,
            corpus_name=shared.corpus,
            corpus_key=key,
            document_id=document_id(key, canonical),
            url=canonical,
        )
        task = ScrapeTask(message_id=message_id, job_id=job_id, url=canonical, request_id=shared.request_id)
        return NewJob(
            job_id,
            target,
            url,
            shared.batch_id,
            OutboxRow(message_id, job_id, 1, FIRST, "queue", write(task), caller_id=shared.caller_id),
            tier=shared.tier,
            job_type=request.job_type,
            priority=request.priority,
            forced=request.force,
            payload_digest=_payload_digest(request, shared.corpus, canonical),
            depends_on=tuple(dict.fromkeys(request.depends_on)),
        )

    def _canonical(self, url: str, field: str) -> str:
        try:
            return canonical_url(url, allowed_hosts=self.allowed_private_hosts)
        except CallerError as error:
            error.field = field
            raise


def _response(accepted: Sequence[Accepted], batch_id: str | None, by: datetime | None) -> SubmitResponse:
    ids = [one.job_id for one in accepted]
    known = list(dict.fromkeys(one.job_id for one in accepted if one.deduplicated))
    return SubmitResponse(
        job_id=ids[0],
        url_count=len(ids),
        job_ids=ids if batch_id else None,
        batch_id=batch_id,
        deduplicated=bool(known),
        deduplicated_job_ids=known if batch_id else None,
        expected_by=by,
    )


def _payload_digest(request: SubmitRequest, corpus: str, canonical: str) -> str:
    """Return the digest of what one job was asked to do, as canonical JSON."""
    payload = {
        "job_type": request.job_type,
        "url": canonical,
        "corpus_name": corpus,
        "priority": request.priority,
        "depends_on": sorted(set(request.depends_on)),
    }
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
