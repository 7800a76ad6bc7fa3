"""Replay: repeat a job as a new one, and compare the two results."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from indexmill.contracts.content import is_given
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_actions import Comparison, JobDiff, ReplayRequest
from indexmill.contracts.identity import CallerContext, new_id
from indexmill.contracts.job import Job
from indexmill.contracts.messages import ChunkTask, ScrapeTask, Stored, read_kept
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.admission.admit import admission_tier, admit
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import is_job_id, read_job, unknown_job
from indexmill.orchestrator.stages.scraping import first_message
from indexmill.orchestrator.store.actions import Original
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.rows import JobSpec, NewJob, OutboxRow
from indexmill.orchestrator.submission.submit import accept_jobs

PRIORITY = 100
"""A replay starts before what is submitted the usual way."""


@dataclass(frozen=True, slots=True)
class ReplayJobs:
    """The replay use cases."""

    store: JobStore
    relay: Relay
    make_id: Callable[[], str] = new_id

    def replay(self, ctx: CallerContext, job_id: str, request: ReplayRequest, request_id: str) -> Job:
        """Return the new job, which repeats the one named.

        Raises CallerError: not_found, insufficient_scope for what the job does, invalid_transition for one
        that has not ended, with source `stored` for one of which no raw content was kept, and with source
        `fetch` for one without a URL.
        """
        original = self._original(ctx, job_id)
        ctx.require_values({"job_type": original.job.job_type})
        if not original.job.status.terminal:
            raise CallerError(ErrorCode.INVALID_TRANSITION, "Only a job that has ended can be replayed.")
        if original.deleted or original.job.job_type == "delete":
            raise CallerError(
                ErrorCode.INVALID_TRANSITION, "What was deleted is submitted again, not replayed."
            )
        if original.job.kind == "sitemap":
            raise CallerError(ErrorCode.INVALID_TRANSITION, "A sitemap is submitted again, not replayed.")
        given = is_given(original.target.url)
        if request.source == "fetch" and given:
            raise _refused("This document has no URL to fetch.", "stored")
        wanted = request.source or ("stored" if given else "fetch")
        stored = original.stored if wanted == "stored" else None
        if wanted == "stored" and stored is None:
            raise _refused("The raw content was not kept.", "fetch")
        new = replace(self._new_job(ctx, original, stored, request_id), budget=request.budget)

        def work(tx: JobsTx) -> list[OutboxRow]:
            accept_jobs(tx, [new])
            return admit(tx, [ctx.caller_id])

        self.relay.send(self.store.transaction(work))
        return self.store.read(lambda tx: read_job(tx, ctx.caller_id, new.job_id))

    def diff(self, ctx: CallerContext, job_id: str) -> JobDiff:
        """Return a replay beside its original, any other job beside that of the version before.

        Raises CallerError: not_found, invalid_transition.
        """
        replay = self._original(ctx, job_id)
        other = replay.job.replay_of or replay.previous_job_id
        if other is None:
            raise CallerError(ErrorCode.INVALID_TRANSITION, "There is no earlier version to compare with.")
        original = self._original(ctx, other)
        parts = compare(original.facts, replay.facts)
        verdicts = {part.verdict for part in parts}
        return JobDiff(
            job_id=job_id,
            status=replay.job.status.value,
            replay_of=replay.job.replay_of,
            compared_with=original.job.job_id,
            original_status=original.job.status.value,
            same=False if "changed" in verdicts else None if "unknown" in verdicts else True,
            parts=parts,
            text_diff=text_diff(self._text(original), self._text(replay)),
        )

    def _text(self, job: Original) -> str | None:
        """Return the text that was split into the job's chunks, while its message is kept."""
        source = job.facts.get("text_job", job.job.job_id)
        payload = self.store.read(lambda tx: tx.kept_payloads(source)).get("chunking")
        return None if payload is None else read_kept(ChunkTask, payload, message_id="").text

    def _original(self, ctx: CallerContext, job_id: str) -> Original:
        found = self.store.read(lambda tx: tx.original(ctx.caller_id, job_id)) if is_job_id(job_id) else None
        if found is None:
            raise unknown_job()
        return found

    def _new_job(
        self, ctx: CallerContext, original: Original, stored: Stored | None, request_id: str
    ) -> NewJob:
        kept = self.store.read(lambda tx: tx.kept_payloads(original.job.job_id))
        new = repeated(original, stored, kept, self.make_id(), self.make_id(), request_id or None)
        # A job of its own, whatever else is in flight for the document.
        return replace(
            new, tier=admission_tier(ctx), priority=PRIORITY, forced=True, caller_type=ctx.caller_type
        )


def repeated(
    original: Original,
    stored: Stored | None,
    kept: Mapping[str, str],
    job_id: str,
    message_id: str,
    request_id: str | None = None,
) -> NewJob:
    """Return a job that repeats another one with its `kept` payloads; without `stored` content it fetches."""
    payload, target = kept.get(FIRST), original.target
    hosts = read_kept(ScrapeTask, payload).hosts if payload else None
    spec = JobSpec(
        job_type=original.job.job_type,
        request_id=request_id,
        accept=original.accept,
        metadata=original.metadata,
    )
    return NewJob(
        job_id,
        target,
        original.job.url,
        None,
        first_message(spec, target, job_id, message_id, stored=stored, hosts=hosts),
        payload_digest=original.payload_digest,
        replay_of=original.job.job_id,
        given=stored if is_given(target.url) else None,
        **vars(spec),
    )


def _refused(message: str, source: str) -> CallerError:
    return CallerError(ErrorCode.INVALID_TRANSITION, message, hint=f'Use "source": "{source}".')


Part = Literal["content", "text", "chunks", "model"]
Facts = Mapping[str, Any]
"""The digests that the stages' modules note of a job."""


@dataclass(frozen=True, slots=True)
class _Kind:
    part: Part
    deciding: tuple[str, ...]
    """These make it the same."""
    beside: Mapping[str, str]
    """These explain a change: the explanation by name, the first that changed; empty for none."""
    why: str
    """When nothing noted explains it."""


_KINDS: Final = (
    _Kind(
        "content",
        ("content_sha256",),
        {"content_type": "", "rendered": "Its scripts were run for one of the two jobs only."},
        "The site serves something else.",
    ),
    _Kind(
        "text",
        ("text_sha256",),
        {"extractor": "The extractor changed."},
        "The same content was read differently.",
    ),
    _Kind(
        "chunks",
        ("chunks_sha256",),
        {
            "chunk_settings": "The chunk settings changed.",
            "chunker": "The chunker changed.",
            "tokenizer": "The tokenizer changed.",
        },
        "The chunker or its tokenizer changed.",
    ),
    _Kind("model", ("model", "dimension"), {}, "Another embedding model is configured."),
)
_INPUT: Final[dict[Part, Part]] = {"text": "content", "chunks": "text"}
"""What a part is made of."""


def compare(before: Facts, after: Facts) -> list[Comparison]:
    """Return the parts of two results in the order in which they are made."""
    verdicts = {kind.part: _verdict(kind, before, after) for kind in _KINDS}
    return [
        Comparison(
            part=kind.part,
            verdict=verdicts[kind.part],
            before=_shown(kind, before),
            after=_shown(kind, after),
            why=_why(kind, verdicts, before, after) if verdicts[kind.part] == "changed" else None,
        )
        for kind in _KINDS
    ]


_MOST_LINES: Final = 2_000
_MOST_CHARACTERS: Final = 16_000


def text_diff(before: str | None, after: str | None) -> str | None:
    """Return a unified diff, cut at 16,000 characters; None without a difference, and for very long texts."""
    if before is None or after is None or before == after:
        return None
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        return None
    lines = difflib.unified_diff(old, new, "before", "after", lineterm="")
    return "\n".join(lines)[:_MOST_CHARACTERS] or None


def _verdict(kind: _Kind, before: Facts, after: Facts) -> Literal["same", "changed", "unknown"]:
    if any(name not in facts for name in kind.deciding for facts in (before, after)):
        return "unknown"
    return "same" if all(before[name] == after[name] for name in kind.deciding) else "changed"


def _shown(kind: _Kind, facts: Facts) -> dict[str, Any]:
    return {name: facts[name] for name in (*kind.deciding, *kind.beside) if name in facts}


def _why(kind: _Kind, verdicts: Mapping[Part, str], before: Facts, after: Facts) -> str:
    made_of = _INPUT.get(kind.part)
    if made_of is not None and verdicts[made_of] == "changed":
        return f"The {made_of} changed."
    changed = (why for name, why in kind.beside.items() if before.get(name) != after.get(name))
    return next(filter(None, changed), kind.why)
