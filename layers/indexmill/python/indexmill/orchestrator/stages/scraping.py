"""Scraping in the Orchestrator: message with a URL or given content, result with a document."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from indexmill.contracts.content import Document, PageFacts
from indexmill.contracts.cost import JobChunks
from indexmill.contracts.job import PageChange, ScrapedResult
from indexmill.contracts.messages import (
    ScrapeResult,
    ScrapeTask,
    StageResult,
    Stored,
    Target,
    read_kept,
    write,
)
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobSpec, JobState, OutboxRow, Previous

TASK: Final = ScrapeTask


def first_message(spec: JobSpec, target: Target, job_id: str, message_id: str, **more: Any) -> OutboxRow:
    """Return the message with which a job begins: it fetches its URL, or reads what is `stored`."""
    task = ScrapeTask(
        message_id=message_id,
        job_id=job_id,
        request_id=spec.request_id,
        url=target.url,
        max_age_s=spec.max_age_s,
        accept=spec.accept,
        **more,
    )
    return OutboxRow(message_id, job_id, task.attempt, FIRST, write(task), caller_id=target.caller_id)


def next_message(message_id: str, state: JobState, before: StageResult) -> ScrapeTask:
    """Return the message that fetches the job's URL."""
    return ScrapeTask(
        message_id=message_id,
        job_id=state.job_id,
        attempt=state.attempt,
        request_id=before.request_id,
        url=state.target.url,
    )


def renew(state: JobState, payload: str, message_id: str, attempt: int, _generation: int) -> ScrapeTask:
    """Return the kept message with new ids.

    Its job may have failed since stored content was lost, so what was known is stored again.
    """
    ids: dict[str, Any] = {"message_id": message_id, "attempt": attempt}
    ids |= {"published": True} if state.previous is not None else {}
    return read_kept(ScrapeTask, payload, **ids, known=None)


def from_stored(payload: str, stored: Stored | None) -> str:
    """Return the kept message, with what was stored to be read in place of the site."""
    return payload if stored is None else write(read_kept(ScrapeTask, payload, stored=stored))


def facts(state: JobState, result: StageResult) -> Change:
    """Return title, digests and raw content of the document; unchanged, those of the version before."""
    document = result.document if isinstance(result, ScrapeResult) else None
    if isinstance(result, ScrapeResult) and result.sitemap is not None:
        return Change(chunk_count=0, ends=True)
    if document is None:
        return Change()
    previous = state.previous
    if document.unchanged is not None:
        return Change(
            title=(previous.title or None) if previous else None,
            chunk_count=previous.chunk_count if previous else None,
            stored=_stored(document),
            facts=_reused(previous) if previous else {},
            change="same",
            unchanged=document.unchanged,
        )
    text = text_digest(state, document)
    digests: dict[str, Any] = {
        "content_sha256": document.content_sha256,
        "content_type": document.content_type,
        "extractor": document.extractor,
        "text_sha256": text,
        "text_job": state.job_id,
        "page": PageFacts.model_validate(document, from_attributes=True).model_dump(
            mode="json", exclude_none=True
        ),
    }
    if document.rendered:
        digests["rendered"] = True
    if state.accept:
        digests["accept"] = state.accept
    if document.notes:
        digests["notes"] = document.notes
    size = document.raw_ref.size if document.raw_ref else len((document.text or "").encode())
    change = _change(previous.facts, digests) if previous is not None else "new"
    return Change(
        title=document.title or None, size=size, stored=_stored(document), facts=digests, change=change
    )


def _reused(previous: Previous) -> dict[str, Any]:
    """Return the facts of a version that stays, all of whose chunks are used again."""
    total = previous.chunk_count
    if total is None:
        return previous.facts
    chunks = JobChunks(total=total, reused=total, embedded=0, removed=0)
    return {**previous.facts, "chunks": chunks.model_dump()}


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> PageChange:
    """Return whether the page changed; what another extractor reads otherwise is no change of the page."""
    if before.get("text_sha256") == after["text_sha256"]:
        return "same"
    if before.get("content_sha256") != after["content_sha256"]:
        return "changed"
    reread = any(before.get(name) != after[name] for name in ("extractor", "content_type"))
    return "same" if reread else "changed"


def text_digest(state: JobState, document: Document) -> str | None:
    """Return the digest of a document's text, if it is known; unchanged, that of the version before."""
    if document.unchanged is not None:
        return state.previous.facts.get("text_sha256") if state.previous else None
    return document.text_ref.sha256 if document.text_ref else _digest((document.text or "").encode())


def from_http(state: JobState, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of `{text, title?, content_type?, final_url?}`."""
    given = ScrapedResult.model_validate(result)
    document = Document(
        url=state.target.url,
        final_url=given.final_url or state.target.url,
        title=given.title,
        content_type=given.content_type,
        text=given.text,
        content_sha256=_digest(given.text.encode()),
    )
    return {"document": document}


def _stored(document: Document) -> Stored | None:
    if document.raw_ref is None:
        return None
    return Stored(
        ref=document.raw_ref,
        content_type=document.content_type,
        charset=document.charset,
        final_url=document.final_url,
        stored_at=document.raw_stored_at,
        extractor=document.extractor,
        etag=document.etag,
        last_modified=document.last_modified,
        fetched_at=document.fetched_at,
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
