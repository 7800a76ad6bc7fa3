"""The published versions of jobs' documents, for decisions that depend on them; the rows are locked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from indexmill.contracts.messages import ScrapeResult, StageResult
from indexmill.contracts.pipeline import BY_NAME
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.results import Published
from indexmill.orchestrator.store.rows import JobState


def with_published(
    tx: JobsTx, states: dict[str, JobState], results: Sequence[StageResult]
) -> dict[str, JobState]:
    """Return the states, with what is published for those whose result depends on it.

    A job whose embedding failed may have been published before its worker crashed. A document that was found
    unchanged may have been published again since its job was submitted.
    """
    asking = {result.job_id for result in results if _depends(result, states.get(result.job_id or ""))}
    chosen = [state for job_id, state in states.items() if job_id in asking]
    return states | {state.job_id: state for state in with_visibility(tx, chosen)}


def with_visibility(tx: JobsTx, states: Sequence[JobState]) -> list[JobState]:
    """Return the states, with what search sees of their documents, which are locked in one statement."""
    wanted = [state.target for state in states if state.issued is not None or state.previous is not None]
    if not wanted:
        return list(states)
    published = tx.lock_documents(wanted)
    return [_seen(state, published.get(state.target.document_id)) for state in states]


def _depends(result: StageResult, state: JobState | None) -> bool:
    if state is None:
        return False
    if isinstance(result, ScrapeResult):
        return result.document is not None and result.document.unchanged is not None
    return BY_NAME[result.stage].publishes and result.status == "failed" and state.issued is not None


def _seen(state: JobState, published: Published | None) -> JobState:
    if published is None:
        return state
    previous, issued = state.previous, state.issued
    return replace(
        state,
        visible=issued is not None and (published.generation or 0) >= issued,
        still_published=previous is not None
        and previous.job_id == published.job_id
        and not published.contested,
    )
