"""The module of each stage, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from indexmill.contracts.messages import Message, StageResult, write
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.stages import chunking, embedding, scraping
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobSpec, JobState, OutboxRow


class StageModule(Protocol):
    """Functions that every stage's module has."""

    @property
    def TASK(self) -> type[Message]:  # noqa: N802 - a constant of the module
        """The message of the stage's queue."""
        ...

    def next_message(self, message_id: str, state: JobState, before: StageResult) -> Message:
        """Return this stage's message, made of the result of the stage before."""
        ...

    def renew(
        self, state: JobState, payload: str, message_id: str, attempt: int, generation: int, /
    ) -> Message:
        """Return the kept message with new ids; only messages that publish have a generation."""
        ...

    def facts(self, state: JobState, result: StageResult) -> Change:
        """Return what a success of this stage writes into its job."""
        ...

    def from_http(self, state: JobState, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the output field of a result that came over HTTP.

        Raises ValidationError for a result that does not fit.
        """
        ...


MODULES: Final[Mapping[str, StageModule]] = {
    "scraping": scraping,
    "chunking": chunking,
    "embedding": embedding,
}


def renewed(
    state: JobState, stage: str, payload: str | None, ids: tuple[str, int, int], **more: Any
) -> OutboxRow:
    """Return the message of `stage` with other `ids`: its own, the attempt's and the generation.

    Without a kept payload only the first stage has one: it fetches the job's URL, or reads what was given
    instead, as `more` says.
    """
    message_id, attempt, _ = ids
    if payload is None and stage == FIRST:
        links = True if state.kind in ("crawl", "page") else None
        more |= {"attempt": attempt, "published": state.previous is not None, "links": links}
        spec = JobSpec(accept=state.accept)
        return scraping.first_message(spec, state.target, state.job_id, message_id, **more)
    body = write(MODULES[stage].renew(state, payload or "", *ids))
    return OutboxRow(message_id, state.job_id, attempt, stage, body, caller_id=state.target.caller_id)
