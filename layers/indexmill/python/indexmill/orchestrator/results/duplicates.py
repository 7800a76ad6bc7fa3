"""Duplicates: pages that name another document of their corpus, which is published with the same text.

A page names a document by its canonical URL or by where it redirects to. Whether it is a duplicate is decided
when its text arrives, while the documents that it names are locked. What changes later, or was published at
the same time, is found when a job of either document ends: the page is marked, and the sweeper has it read
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from indexmill.contracts.content import is_given
from indexmill.contracts.identity import document_id
from indexmill.contracts.job import DuplicateOf, JobStatus
from indexmill.contracts.messages import ScrapeResult, StageResult
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.stages.scraping import text_digest
from indexmill.orchestrator.store.duplicates import Duplicate, PublishedText
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobState
from indexmill.orchestrator.store.texts import retryable


@dataclass(frozen=True, slots=True)
class Named:
    """Documents that a page names, and the digest of its text."""

    documents: frozenset[str]
    text_sha256: str
    read: bool
    """Whether these are all: a page that is unchanged says only where it redirected to."""


def named_by(state: JobState | None, result: StageResult) -> Named | None:
    """Return the documents that a page names; None for one that names none and named none before."""
    document = result.document if isinstance(result, ScrapeResult) else None
    if state is None or document is None or is_given(state.target.url):
        return None
    own, text = state.target, text_digest(state, document)
    urls = {document.canonical_url or own.url, document.final_url} - {own.url}
    if text is None or not (urls or state.has_duplicates):
        return None
    named = frozenset(document_id(own.corpus_key, url) for url in urls) - {own.document_id}
    return Named(named, text, read=document.unchanged is None)


def with_originals(
    tx: JobsTx, states: dict[str, JobState], results: Sequence[StageResult]
) -> tuple[dict[str, JobState], dict[str, Named]]:
    """Return the states, with the original of each page that is a duplicate, and what the pages name.

    The documents stay locked. A duplicate names its original, or another duplicate of it.
    """
    found = {
        result.job_id: named
        for result in results
        if result.job_id and (named := named_by(states.get(result.job_id), result)) is not None
    }
    asking = {job_id: each for job_id, each in found.items() if each.documents}
    if not asking:
        return states, found
    pages = {states[job_id].target.document_id for job_id in asking}
    candidates = {each for named in asking.values() for each in named.documents}
    further = set(tx.originals_of(candidates).values())
    tx.lock_originals(pages | candidates | further)
    # What was decided before these rows were locked is seen now.
    holding, texts = tx.originals_of(candidates), tx.published_texts(pages | candidates | further)
    for job_id, named in asking.items():
        state, own = states[job_id], states[job_id].target.document_id
        if state.issued is not None:
            tx.lock_documents([state.target])
        original = _original(own, named, holding, texts)
        states[job_id] = replace(state, is_shown=own in texts, original=original)
        # Of pages of one batch that name each other one is left.
        if original is not None:
            holding[own] = original.document_id
        else:
            holding.pop(own, None)
    return states, found


def _original(
    own: str, named: Named, holding: Mapping[str, str], texts: Mapping[str, PublishedText]
) -> DuplicateOf | None:
    for each in sorted(named.documents):
        original, passed = each, {own}
        while original in holding and original not in passed:
            passed.add(original)
            original = holding[original]
        seen = texts.get(original)
        if original == own or seen is None or seen.stale or seen.text_sha256 != named.text_sha256:
            continue
        return DuplicateOf(document_id=original, url=seen.url)
    return None


def save_duplicates(
    tx: JobsTx, states: Mapping[str, JobState], changes: Mapping[str, Change], found: Mapping[str, Named]
) -> None:
    """Keep what the pages name whose results were applied, and mark what is outdated now that jobs ended.

    A page that could not be read is marked only when another try can help.
    """
    applied = {job_id: named for job_id, named in found.items() if job_id in changes}
    if applied:
        rows = []
        for job_id, named in applied.items():
            original = changes[job_id].duplicate_of
            holds = {original.document_id} if original is not None else set()
            own = states[job_id].target.document_id
            rows += [
                Duplicate(own, each, named.text_sha256, each in holds, job_id)
                for each in sorted(named.documents | holds)
            ]
        read = [states[job_id].target.document_id for job_id, named in applied.items() if named.read]
        tx.keep_duplicates(read, rows)
    ended = {
        states[job_id].target.document_id: each
        for job_id, each in changes.items()
        if each.ended and (states[job_id].has_duplicates or job_id in applied)
    }
    if ended:
        unread = {own for own, each in ended.items() if each.error is not None and each.error.stage == FIRST}
        later = {own for own in unread if retryable(JobStatus.FAILED, ended[own].error)}
        tx.mark_outdated(sorted(ended), sorted((ended.keys() - unread) | later), sorted(later))
