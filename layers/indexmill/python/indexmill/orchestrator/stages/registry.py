"""The module of each stage, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from indexmill.contracts.messages import Message, StageResult, write
from indexmill.orchestrator.stages import chunking, embedding, scraping
from indexmill.orchestrator.stages.output import Output, Renewal
from indexmill.orchestrator.store.rows import JobState, OutboxRow


class StageModule(Protocol):
    """Functions that every stage's module has."""

    @property
    def TASK(self) -> type[Message]:  # noqa: N802 - a constant of the module
        """The message of the stage's queue."""
        ...

    def next_message(self, message_id: str, state: JobState, before: StageResult) -> Message:
        """Return this stage's message, made of the result of the stage before."""
        ...

    def renew(self, state: JobState, payload: str | None, renewal: Renewal) -> Message:
        """Return the kept message with new ids. Only the first stage can do without a kept one."""
        ...

    def facts(self, state: JobState, result: StageResult) -> Output:
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


def renewed(state: JobState, stage: str, payload: str | None, renewal: Renewal) -> OutboxRow:
    """Return the message of `stage` with new ids; without a kept payload only the first stage has one."""
    return OutboxRow(
        renewal.message_id,
        state.job_id,
        renewal.attempt,
        stage,
        write(MODULES[stage].renew(state, payload, renewal)),
        caller_id=state.target.caller_id,
    )
