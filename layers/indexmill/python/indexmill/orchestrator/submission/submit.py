"""Submission: one job for each URL or given content, committed with its first message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from indexmill.contracts.content import Content, uri_of
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.identity import (
    CallerContext,
    CorpusIsolation,
    corpus_key,
    corpus_name,
    document_id,
    new_id,
)
from indexmill.contracts.job import SubmitRequest, SubmitResponse
from indexmill.contracts.messages import Stored, Target
from indexmill.orchestrator.admission.admit import admission_tier, admit, budget_of, expectations, with_starts
from indexmill.orchestrator.admission.dependencies import wait_for
from indexmill.orchestrator.crawling.follow import check_room, start_crawl
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.stages.scraping import first_message
from indexmill.orchestrator.store.jobs import JobStore, JobsTx, RunAgain
from indexmill.orchestrator.store.rows import SHARED, CorpusMoved, InFlight, JobSpec, NewJob, OutboxRow
from indexmill.orchestrator.submission.idempotency import checked_key, kept_answer, request_digest
from indexmill.orchestrator.submission.uploads import Uploads, kept, uploaded
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.meter import METER, split
from indexmill.platform.security.urls import AllowedHosts, canonical_url
from indexmill.platform.time import Clock, SystemClock

_TRIES: Final = 5
"""Of a submit whose caller or corpus is another one than it was thought to be."""
_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """Result of a submit for one document."""

    job_id: str
    deduplicated: bool = False
    """Whether this is a job that was in flight for the document before."""
    expected_by: datetime | None = None


class CallerMoved(TransientError):
    """The caller became an alias of another one since its key was validated."""

    def __init__(self, root: str) -> None:
        """`root` is the other one; the gateway knows it when the validation expires."""
        super().__init__(
            ErrorCode.AUTH_UNAVAILABLE, "This key's caller was linked to another one.", retry_after=60
        )
        self.root = root


class _Undone(Exception):
    """Raised to undo a transaction that accepted everything."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, and what its jobs share."""

    request: SubmitRequest
    spec: JobSpec
    caller_id: str
    corpus: str
    batch_id: str | None


@dataclass(frozen=True, slots=True)
class SubmitJobs:
    """The submit use case."""

    store: JobStore
    relay: Relay
    blobs: BlobStore
    uploads: Uploads
    allowed_private_hosts: AllowedHosts = frozenset()
    make_id: Callable[[], str] = new_id
    isolation: CorpusIsolation = CorpusIsolation.CALLER
    clock: Clock = field(default_factory=SystemClock)
    recipe: dict[str, Any] | None = None
    """As in JobSpec."""
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """Keys of corpora whose name another one had before, by owner and name. A wrong one is found out."""

    def __call__(
        self, ctx: CallerContext, request: SubmitRequest, request_id: str, idempotency_key: str | None = None
    ) -> SubmitResponse:
        """Accept the request's URLs, or its content.

        When this returns, every job is committed with its first message.

        The same request under the same `idempotency_key` within a day gets the first one's answer. The jobs
        are those of the caller `request.on_behalf_of`, for an internal caller that names one.
        Raises CallerError for a bad corpus name, URL, dependency or key, for `on_behalf_of` by anyone else
        (forbidden), for other content of a document with a job in flight (invalid_transition), and then
        accepts none of them; CallerMoved; TransientError(storage_unavailable).
        """
        response, messages = self._for_owner(ctx, request, request_id, idempotency_key)
        self.relay.send(messages)
        return response

    def check(self, ctx: CallerContext, request: SubmitRequest, idempotency_key: str | None = None) -> None:
        """Return when a call with the same arguments would be accepted now; raises what it would raise.

        It runs the same transaction and undoes it, so nothing is kept or sent.
        """
        with suppress(_Undone):
            self._for_owner(ctx, request, "", idempotency_key, keep=False)

    def _for_owner(
        self,
        ctx: CallerContext,
        request: SubmitRequest,
        request_id: str,
        idempotency_key: str | None,
        *,
        keep: bool = True,
    ) -> tuple[SubmitResponse, list[OutboxRow]]:
        """Submit for the owner, or for the caller whose alias it has become since."""
        owner = owner_of(ctx, request)
        for _ in range(_TRIES):
            try:
                return self._submit(owner, ctx, request, request_id, idempotency_key, keep=keep)
            except CallerMoved as moved:
                if owner == ctx:
                    raise
                owner = replace(owner, caller_id=moved.root)
            except CorpusMoved as moved:
                if len(self._keys) >= _REMEMBERED:
                    self._keys.clear()
                place = self.isolation.owner(owner.caller_id), corpus_name(request.corpus_name)
                self._keys[place] = moved.key
        raise TransientError(
            ErrorCode.DATABASE_UNAVAILABLE, "The corpus is being renamed too often.", retry_after=1
        )

    def _submit(
        self,
        owner: CallerContext,
        ctx: CallerContext,
        request: SubmitRequest,
        request_id: str,
        idempotency_key: str | None,
        *,
        keep: bool,
    ) -> tuple[SubmitResponse, list[OutboxRow]]:
        key = checked_key(idempotency_key) if idempotency_key is not None else None
        urls = list(request.urls or ()) if request.url is None else [request.url]
        crawls = request.kind in ("crawl", "sitemap")
        batch_id = self.make_id() if request.urls is not None or crawls else None
        spec = JobSpec(
            tier=admission_tier(owner),
            caller_type=owner.caller_type,
            submitted_by=None if request.on_behalf_of is None else ctx.caller_id,
            request_id=request_id or None,
            forced=request.force,
            mark_stale=request.when_gone == "mark_stale",
            max_age_s=request.max_age or None,
            recipe=self.recipe,
            rules=request.rules,
            **{name: getattr(request, name) for name in SHARED if name in SubmitRequest.model_fields},
        )
        asked = _Asked(request, spec, owner.caller_id, corpus_name(request.corpus_name), batch_id)
        # Of jobs with equal priority the one with the lesser id starts first: the one that was named first.
        ids = sorted(self.make_id() for _ in range(len(urls) or 1))
        if request.content is not None:
            jobs = [self._given(asked, ids[0], request.content, ctx.caller_id)]
        else:
            jobs = [self._fetching(asked, ids[position], url, position) for position, url in enumerate(urls)]

        def work(tx: JobsTx) -> tuple[SubmitResponse, list[OutboxRow]]:
            if key is not None and not tx.take_key(ctx.caller_id, key, request_digest(request)):
                return kept_answer(tx, ctx.caller_id, key, request_digest(request)), []
            if crawls:
                check_room(tx, jobs[0])
            response = _response(accept_jobs(tx, jobs), batch_id)
            if crawls:
                start_crawl(tx, jobs[0])
            if not keep:
                raise _Undone
            if key is not None:
                tx.keep_answer(ctx.caller_id, key, response.model_dump_json())
            return response, admit(tx, [owner.caller_id])

        return self.store.transaction(work)

    def _fetching(self, asked: _Asked, job_id: str, url: str, position: int) -> NewJob:
        try:
            canonical = canonical_url(url, allowed_hosts=self.allowed_private_hosts)
        except CallerError as error:
            error.field = "body.url" if asked.request.urls is None else f"body.urls.{position}"
            raise
        # An international name can look like another: its job shows it in A-labels.
        shown = url if urlsplit(url).netloc.isascii() else canonical
        return self._new_job(asked, job_id, shown, canonical)

    def _given(self, asked: _Asked, job_id: str, content: Content, sender: str) -> NewJob:
        """Return a job whose first message says where its content is kept."""
        uri = uri_of(content.name)
        if content.upload_id is None:
            stored = kept(self.blobs, content, self.clock)
        else:
            stored = uploaded(self.uploads, content, sender)
        return self._new_job(asked, job_id, uri, uri, stored)

    def _new_job(
        self, asked: _Asked, job_id: str, url: str, canonical: str, given: Stored | None = None
    ) -> NewJob:
        request, spec, message_id = asked.request, asked.spec, self.make_id()
        corpora = self.isolation.owner(asked.caller_id)
        key = self._keys.get((corpora, asked.corpus)) or corpus_key(corpora, asked.corpus)
        target = Target(
            caller_id=asked.caller_id,
            corpus_name=asked.corpus,
            corpus_key=key,
            document_id=document_id(key, canonical),
            url=canonical,
        )
        linked = request.kind == "crawl"
        sitemap = spec.rules if request.kind == "sitemap" else None
        more = {"stored": given, "links": True if linked else None, "sitemap": sitemap}
        return NewJob(
            job_id,
            target,
            url,
            asked.batch_id,
            first_message(spec, target, job_id, message_id, **more),
            payload_digest=payload_digest(request, asked.corpus, canonical, given),
            depends_on=tuple(dict.fromkeys(request.depends_on)),
            given=given,
            kind=None if request.kind == "page" else request.kind,
            corpus_owner=corpora,
            linked=linked,
            **vars(spec),
        )


def owner_of(ctx: CallerContext, request: SubmitRequest) -> CallerContext:
    """Return the caller whose jobs these are. Raises CallerError(forbidden)."""
    if request.on_behalf_of is None:
        return ctx
    if not ctx.internal:
        raise CallerError(
            ErrorCode.FORBIDDEN, "Only internal callers submit for others.", field="body.on_behalf_of"
        )
    # Its quotas are those of a caller, of the tier that Membership reports for the internal one.
    return CallerContext(request.on_behalf_of, tier=ctx.tier, scopes=ctx.scopes)


def accept_jobs(tx: JobsTx, jobs: Sequence[NewJob]) -> list[Accepted]:
    """Insert pending jobs of one caller and corpus; return the result for each, in order.

    A job whose document another one is in flight for becomes that one, unless it is forced. Raises
    CallerError: quota_exceeded for too many pending jobs, validation_error for a wrong dependency.
    """
    caller_id, depends_on = jobs[0].target.caller_id, jobs[0].depends_on
    usage, overall, pending = tx.usage(caller_id, jobs[0].tier)
    quota = tx.limits.of(jobs[0].tier)
    jobs = with_starts(tx, [replace(job, budget=budget_of(job.budget, quota)) for job in jobs])
    expected = expectations(pending, jobs, usage, tx.limits, overall, tx.pace())
    accepted, inserted = _insert(tx, jobs, expected)
    if depends_on:
        wait_for(tx, caller_id, inserted, depends_on)
    return accepted


def _insert(
    tx: JobsTx, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None]
) -> tuple[list[Accepted], list[str]]:
    """Return the result for each job, and the ids of those that were inserted."""
    inserted = sorted(tx.insert_jobs(jobs, expected, split(METER.due(), [1] * len(jobs))[0]))
    refused = [job for job in jobs if job.job_id not in inserted]
    found, beside = _duplicates(tx, refused)
    if beside:
        inserted = sorted([*inserted, *tx.insert_jobs(beside, expected, {})])
    found |= {job_id: Accepted(job_id, expected_by=expected[job_id]) for job_id in inserted}
    if any(job.job_id not in found for job in jobs):
        caller_id = jobs[0].target.caller_id
        if (root := tx.root_of(caller_id)) != caller_id:
            raise CallerMoved(root)
        # Its document had a job in flight, which has ended since. To insert it now could deadlock: documents
        # are locked in their order, and the others' are locked already.
        raise RunAgain
    return [found[job.job_id] for job in jobs], inserted


def _duplicates(tx: JobsTx, refused: Sequence[NewJob]) -> tuple[dict[str, Accepted], list[NewJob]]:
    """Return the caller's jobs in flight for the refused ones' documents, by the refused one's id.

    In a shared corpus it may be another caller's job that is in flight, which this caller must not see: the
    refused job is returned too, to be inserted beside it. So is the first job of a crawl, which must not get
    lost, and one that accepts other pages than the job in flight or has other metadata. Raises CallerError
    (invalid_transition) where the refused job has other content than the one in flight: it must not be lost.
    """
    if not refused:
        return {}, []
    caller_id, apart = refused[0].target.caller_id, set[str]()
    own = {job.job_id for job in refused}
    by_document: dict[str, Accepted] = {}
    found: dict[str, Accepted] = {}
    for job in tx.jobs_in_flight([job.target.document_id for job in refused], list(own)):
        # A job of its own was inserted by a commit whose answer was lost.
        known = Accepted(job.job_id, job.job_id not in own, job.expected_by)
        if job.job_id in own:
            found[job.job_id] = known
        elif job.caller_id != caller_id or refused[0].kind is not None:
            apart.add(job.document_id)
        else:
            _check_same_content(refused, job)
            given = refused[0].metadata
            if job.accept == refused[0].accept and (given is None or given == job.metadata):
                by_document[job.document_id] = known
            else:
                apart.add(job.document_id)
    for new in refused:
        if new.job_id not in found and new.target.document_id in by_document:
            found[new.job_id] = by_document[new.target.document_id]
    beside = [
        replace(new, forced=True)
        for new in refused
        if new.job_id not in found and new.target.document_id in apart
    ]
    return found, beside


def _check_same_content(refused: Sequence[NewJob], job: InFlight) -> None:
    for new in refused:
        if new.target.document_id != job.document_id or new.given is None:
            continue
        if new.given.ref.sha256 != job.content_sha256:
            raise CallerError(
                ErrorCode.INVALID_TRANSITION,
                f"Job {job.job_id} is at work on other content of this name.",
                field="body.content.name",
                hint='Wait for it or cancel it first, or send "force": true.',
            )


def _response(accepted: Sequence[Accepted], batch_id: str | None) -> SubmitResponse:
    ids = [one.job_id for one in accepted]
    known = list(dict.fromkeys(one.job_id for one in accepted if one.deduplicated))
    return SubmitResponse(
        job_id=ids[0],
        url_count=len(ids),
        job_ids=ids if batch_id else None,
        batch_id=batch_id,
        deduplicated=bool(known),
        deduplicated_job_ids=known if batch_id else None,
        expected_by=max((one.expected_by for one in accepted if one.expected_by), default=None),
    )


def payload_digest(request: SubmitRequest, corpus: str, canonical: str, given: Stored | None) -> str:
    """Return the digest of one job's request, as canonical JSON."""
    payload = {
        "job_type": request.job_type,
        "url": canonical,
        "corpus_name": corpus,
        "priority": request.priority,
        "depends_on": sorted(set(request.depends_on)),
    }
    if given is not None:
        payload["content"] = given.model_dump(mode="json", exclude={"stored_at"})
    if request.budget is not None:
        payload["budget"] = request.budget.model_dump(exclude_none=True)
    given_fields = {name: getattr(request, name) for name in ("max_age", "when_gone", "accept", "metadata")}
    payload |= {name: value for name, value in given_fields.items() if value is not None}
    if request.kind in ("crawl", "sitemap"):
        payload["kind"] = request.kind
        payload["crawl"] = request.rules.model_dump()
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
