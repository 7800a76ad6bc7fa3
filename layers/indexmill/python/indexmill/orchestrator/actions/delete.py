"""Deletion: fence documents, cancel what is in flight for them, and start the job that takes them away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from indexmill.contracts.content import uri_of
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_deletion import Deletion, DeletionPreview
from indexmill.contracts.identity import CallerContext, CorpusIsolation, corpus_name, document_id, new_id
from indexmill.contracts.job import JobStatus, SubmitRequest, SubmitResponse
from indexmill.contracts.messages import Target
from indexmill.orchestrator.actions.cancel import fail_canceled, in_first_stage
from indexmill.orchestrator.admission.admit import admission_tier, admit
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import is_job_id, unknown_job
from indexmill.orchestrator.results.deletions import PART, first_part
from indexmill.orchestrator.store.actions import LockedJob
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.orchestrator.submission.idempotency import checked_key, kept_answer, request_digest
from indexmill.orchestrator.submission.submit import CallerMoved, owner_of
from indexmill.platform.progress import Cancels
from indexmill.platform.security.stream_tokens import Keys, seal, unseal
from indexmill.platform.security.urls import AllowedHosts, canonical_url
from indexmill.platform.time import Clock

_PURPOSE: Final = b"indexmill.deletion.v1\0"
"""Of the tokens by which a dry run is confirmed."""
_MOST_OF_FILTER: Final = 20_000
"""Documents that one transaction can fence while its caller waits."""
_CONFIRM_WITHIN: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Matched:
    """Documents that match a request now."""

    corpus: str
    corpus_key: str
    documents: list[Target]
    """Of a whole corpus the first ones only."""
    chunks: int
    kind: Literal["document", "filter", "everything"] = "document"
    url_prefix: str | None = None
    count: int = 1
    """Of documents."""

    @property
    def what(self) -> dict[str, Any]:
        """Return what was asked for, as the report says it: without a URL or a name."""
        return {"kind": self.kind, "corpus_key": self.corpus_key}


@dataclass(frozen=True, slots=True)
class DeleteDocuments:
    """The delete use case."""

    store: JobStore
    relay: Relay
    clock: Clock
    cancels: Cancels | None = None
    isolation: CorpusIsolation = CorpusIsolation.CALLER
    allowed_hosts: AllowedHosts = frozenset()
    keys: Keys | None = None
    """Secrets that the tokens of dry runs are signed with."""
    make_id: Callable[[], str] = new_id
    _field: str = field(default="body.delete", init=False)

    def preview(self, ctx: CallerContext, request: SubmitRequest) -> DeletionPreview:
        """Return what the request would delete now. Raises CallerError as the call does."""
        caller_id, wanted = owner_of(ctx, request).caller_id, _wanted(request)
        found = self.store.read(lambda tx: self._match(tx, ctx, caller_id, request, wanted))
        count, until = found.count, self.clock.now() + _CONFIRM_WITHIN
        confirm = None
        if found.kind != "document" and self.keys is not None:
            secret = self.keys.known()[0]
            confirm = seal(secret, _PURPOSE, [*_meant(caller_id, found), count, int(until.timestamp())])
        return DeletionPreview(
            documents=count, chunks=found.chunks, confirm=confirm, confirm_until=until if confirm else None
        )

    def __call__(
        self, ctx: CallerContext, request: SubmitRequest, request_id: str, idempotency_key: str | None = None
    ) -> SubmitResponse:
        """Return the pending job. When this returns, nothing of before is published any more.

        Jobs that are in flight for the documents fail as `canceled`. The same request under the same
        `idempotency_key` within a day gets the first one's answer. Raises CallerError: not_found, forbidden
        for documents that others submitted too, and what a bad URL or name is.
        """
        key = checked_key(idempotency_key) if idempotency_key is not None else None
        owner, wanted, digest = owner_of(ctx, request), _wanted(request), request_digest(request)
        job_id, message_id = self.make_id(), self.make_id()
        fetching: dict[str, int] = {}

        def work(tx: JobsTx) -> tuple[SubmitResponse, list[OutboxRow]]:
            if key is not None and not tx.take_key(ctx.caller_id, key, digest):
                return kept_answer(tx, ctx.caller_id, key, digest), []
            if (root := tx.root_of(owner.caller_id)) != owner.caller_id:
                raise CallerMoved(root)
            found = self._match(tx, ctx, owner.caller_id, request, wanted)
            self._check_confirmed(owner.caller_id, found, wanted.confirm)
            fetching.update(self._fence(tx, owner.caller_id, found, job_id, request_id))
            self._insert(
                tx,
                found,
                message_id,
                {
                    "job_id": job_id,
                    "caller_id": owner.caller_id,
                    "tier": admission_tier(owner),
                    "payload_digest": digest,
                    "request_id": request_id or None,
                    "caller_type": owner.caller_type,
                    "submitted_by": None if request.on_behalf_of is None else ctx.caller_id,
                },
            )
            response = SubmitResponse(job_id=job_id, url_count=found.count)
            if key is not None:
                tx.keep_answer(ctx.caller_id, key, response.model_dump_json())
            return response, admit(tx, [owner.caller_id])

        response, messages = self.store.transaction(work)
        if self.cancels is not None and fetching:
            self.cancels.mark(fetching)
        self.relay.send(messages)
        return response

    def _insert(self, tx: JobsTx, found: _Matched, message_id: str, job: dict[str, Any]) -> None:
        """Write tombstones and the pending job with its first message. The documents are locked."""
        job_id, generation = job["job_id"], tx.next_generation()
        documents = [each.document_id for each in found.documents]
        whole = found.corpus_key if found.kind == "everything" else None
        # The key of a corpus fences all of its documents.
        tx.fence_documents(job_id, [] if whole else documents, generation, whole)
        if whole is not None:
            tx.free_name(whole)
        alone = documents[0] if found.kind == "document" else None
        target = Target(
            caller_id=job["caller_id"],
            corpus_name=found.corpus,
            corpus_key=found.corpus_key,
            document_id=alone or "",
            url=f"delete:{alone or job_id}",
        )
        state = JobState(job_id, JobStatus.PENDING, 1, target, generation)
        row = first_part(state, sorted(documents)[:PART], generation, message_id)
        own = {"url": target.url, "corpus_name": found.corpus, "corpus_key": found.corpus_key}
        tx.insert_deletion(row, {**job, **own, "document": alone, "generation": generation}, found.what)

    def report(self, ctx: CallerContext, job_id: str) -> dict[str, Any]:
        """Return the signed report of the caller's deletion. Raises CallerError(not_found)."""
        found = self.store.read(lambda tx: tx.report(ctx.caller_id, job_id)) if is_job_id(job_id) else None
        if found is None:
            raise unknown_job()
        return found

    def _fence(
        self, tx: JobsTx, caller_id: str, found: _Matched, job_id: str, request_id: str
    ) -> dict[str, int]:
        """Cancel the jobs in flight and lock the documents; return the attempts that may be fetching."""
        ids = [each.document_id for each in found.documents]

        def in_flight() -> list[LockedJob]:
            if found.kind == "everything":
                return tx.lock_corpus_jobs(found.corpus_key)
            return tx.lock_document_jobs(found.corpus_key, ids)

        jobs = in_flight()
        # Of many, only those that a job in flight could make get a row; the fence locks the others.
        many = [] if found.kind != "document" else found.documents
        tx.lock_documents([*many, *(each.state.target for each in jobs)])
        # What a page of a crawl added until then is seen by the second look.
        tx.lock_open_crawls(caller_id)
        known = {each.state.job_id for each in jobs}
        jobs += [each for each in in_flight() if each.state.job_id not in known]
        reason = f"Its document was deleted by job {job_id}."
        fail_canceled(tx, jobs, reason, self.clock.now(), request_id or None)
        return in_first_stage(jobs)

    def _check_confirmed(self, caller_id: str, found: _Matched, confirm: str | None) -> None:
        """Raise CallerError unless the token of a dry run covers what matches now."""
        if found.kind == "document":
            return
        payload = unseal(self.keys, _PURPOSE, confirm) if self.keys is not None and confirm else None
        *meant, count, until = payload or [None, 0, 0]
        if meant != _meant(caller_id, found) or until < self.clock.now().timestamp():
            raise CallerError(
                ErrorCode.VALIDATION_ERROR,
                "Send the confirm of a dry run of the same deletion, at most ten minutes old.",
                field="body.delete.confirm",
                hint='Send it with "dry_run": true first.',
            )
        if found.count > count:
            raise CallerError(
                ErrorCode.CONFIRM_MISMATCH,
                f"{found.count} documents match now; the dry run found {count}.",
                field="body.delete.confirm",
                hint="Look at what matches, and confirm that.",
            )

    def _match(
        self, tx: JobsTx, ctx: CallerContext, caller_id: str, request: SubmitRequest, wanted: Deletion
    ) -> _Matched:
        if wanted.filter is not None or wanted.everything:
            return self._match_many(tx, ctx, caller_id, corpus_name(request.corpus_name), wanted)
        name = request.corpus_name
        if name is None and wanted.document_id is not None:
            name = tx.corpus_name_of(self.isolation.owner(caller_id), wanted.document_id)
        corpus = corpus_name(name)
        asked = tx.key_of_corpus(self.isolation.owner(caller_id), corpus)
        document, url = self._named(wanted, asked)
        found = tx.find_document(asked, document)
        callers = tx.callers_of_document(asked, document)
        bound = self.isolation is CorpusIsolation.SHARED and not ctx.internal
        if found is None and (caller_id not in callers if bound else not callers):
            raise self._unknown()
        if bound:
            _check_owner(caller_id, callers, found.owner if found else caller_id)
        target = Target(
            caller_id=caller_id,
            corpus_name=corpus,
            corpus_key=asked,
            document_id=document,
            url=found.url if found else url,
        )
        return _Matched(corpus, asked, [target], found.chunk_count if found else 0)

    def _match_many(
        self, tx: JobsTx, ctx: CallerContext, caller_id: str, corpus: str, wanted: Deletion
    ) -> _Matched:
        owner = self.isolation.owner(caller_id)
        key, shared = tx.key_of_corpus(owner, corpus), not owner
        if not tx.corpus_exists(key):
            raise CallerError(ErrorCode.NOT_FOUND, "There is no such corpus.", field="body.corpus_name")
        if wanted.everything and shared and not ctx.internal:
            raise CallerError(
                ErrorCode.FORBIDDEN, "Callers share this corpus.", field="body.delete.everything"
            )
        prefix = wanted.filter.url_prefix if wanted.filter else None
        rows = tx.match_documents(key, prefix, caller_id, alone=shared and not ctx.internal)
        if prefix is not None and not rows:
            raise self._unknown()
        if prefix is not None and len(rows) > _MOST_OF_FILTER:
            raise CallerError(
                ErrorCode.VALIDATION_ERROR,
                f"{len(rows)} documents match; a filter takes at most {_MOST_OF_FILTER}.",
                field="body.delete.filter",
                hint="Send a longer url_prefix, or delete the corpus.",
            )
        targets = [
            Target(
                caller_id=caller_id, corpus_name=corpus, corpus_key=key, document_id=document, url=url or ""
            )
            for document, url, _ in (rows if prefix is not None else rows[:PART])
        ]
        kind: Literal["filter", "everything"] = "filter" if prefix is not None else "everything"
        return _Matched(corpus, key, targets, sum(chunks for *_, chunks in rows), kind, prefix, len(rows))

    def _named(self, wanted: Deletion, key: str) -> tuple[str, str]:
        """Return id and URL of the one document; the URL is "" where only the id is known."""
        if wanted.document_id is not None:
            return wanted.document_id, ""
        if wanted.name is not None:
            url = uri_of(wanted.name)
        else:
            try:
                url = canonical_url(wanted.url or "", allowed_hosts=self.allowed_hosts)
            except CallerError as error:
                error.field = "body.delete.url"
                raise
        return document_id(key, url), url

    def _unknown(self) -> CallerError:
        return CallerError(ErrorCode.NOT_FOUND, "There is no such document.", field=self._field)


def _check_owner(caller_id: str, callers: set[str], owner: str | None) -> None:
    """Refuse to delete what others share; of what is older than owners are known, its jobs tell."""
    if callers - {caller_id} or (owner is not None and owner != caller_id) or (owner is None and not callers):
        raise CallerError(
            ErrorCode.FORBIDDEN, "Others have submitted this document too.", field="body.delete"
        )


def _meant(caller_id: str, found: _Matched) -> list[Any]:
    """Return what a token is good for."""
    return [caller_id, found.corpus_key, found.kind, found.url_prefix]


def _wanted(request: SubmitRequest) -> Deletion:
    if request.delete is None:
        raise CallerError(ErrorCode.VALIDATION_ERROR, "Send delete.", field="body.delete")
    return request.delete
