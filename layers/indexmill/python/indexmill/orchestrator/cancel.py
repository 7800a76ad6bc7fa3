"""Stop a job on its owner's word."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job
from indexmill.orchestrator.read import is_job_id
from indexmill.orchestrator.relay import Sender
from indexmill.orchestrator.verb_ports import JobVerbs
from indexmill.orchestrator.verb_rules import unknown_job
from indexmill.platform.time.clock import Clock


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The cancel use case."""

    verbs: JobVerbs
    relay: Sender
    clock: Clock

    def __call__(self, ctx: CallerContext, job_id: str, reason: str) -> Job:
        """Return the job, failed with code `canceled`; whatever is still reported of it changes nothing.

        Raises CallerError: not_found, or invalid_transition for a job that ended or is published already.
        """
        if not is_job_id(job_id):
            raise unknown_job()
        outcome = self.verbs.cancel(ctx.caller_id, job_id, reason, self.clock.now())
        self.relay.send(outcome.outbox)
        return outcome.job
