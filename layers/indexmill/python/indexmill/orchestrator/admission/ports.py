"""Port of admission: quotas, queues of callers, and dependencies of jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from indexmill.contracts.cost import Amounts
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.admission.admit import CallerQueue, GlobalUsage, Limits, Pace, Usage
from indexmill.orchestrator.admission.turns import Fetch, HeldBack, Released, SiteTurns
from indexmill.orchestrator.jobs.rows import OutboxRow
from indexmill.platform.pressure import Load


class AdmissionTx(Protocol):
    """Row operations of admission."""

    @property
    def limits(self) -> Limits:
        """The configured quotas and bounds."""
        ...

    def usage(self, caller_id: str, tier: str) -> tuple[Usage, GlobalUsage, int]:
        """Return the caller's usage, that of all callers, and how many jobs of the caller are pending."""
        ...

    def load(self, most: int) -> Load:
        """Return how many jobs of all callers are pending or in flight, counted up to `most` each.

        The age is that of the job which has waited longest for capacity: its caller's quota, its dependencies
        and no operator keep it waiting.
        """
        ...

    def pace(self) -> Pace:
        """Return how fast jobs went lately; may be a second old."""
        ...

    def queues_to_admit(
        self, callers: Sequence[str], done: Sequence[str]
    ) -> tuple[list[CallerQueue], GlobalUsage] | None:
        """Lock the callers, and others that wait for capacity, and return their queues; None without any.

        `done` are jobs that were done in this transaction, whose chunks count against daily quotas.
        """
        ...

    def start_jobs(self, job_ids: Sequence[str], spent: Amounts) -> list[OutboxRow]:
        """Admit the pending jobs and return their messages in the same order, claimed by this process.

        Each has `spent` on its receipt.
        """
        ...

    def mark_waiting_for_capacity(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs would start with more capacity."""
        ...

    def clear_waiting_for_capacity(self, callers: Sequence[str]) -> None:
        """Clear that mark for the callers' pending jobs."""
        ...

    def waiting_callers(self) -> list[str]:
        """Return the callers with a pending job that no dependency blocks."""
        ...

    def positions(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return position (1 is next) and tier of those of the jobs that are in the caller's queue."""
        ...

    def lock_sites(self, sites: Sequence[str]) -> dict[str, SiteTurns]:
        """Lock and return the sites, which are made when they are new."""
        ...

    def keep_sites(self, sites: Sequence[SiteTurns]) -> None:
        """Write the states of locked sites."""
        ...

    def due_sites(self, most: int) -> list[SiteTurns]:
        """Lock and return sites whose next held-back job may leave; those that are locked are left out.

        A look that finds none is not repeated within a second by the same process.
        """
        ...

    def release_jobs(self, sites: Sequence[SiteTurns], counts: Sequence[int]) -> dict[str, Released]:
        """Put so many of each site's held-back jobs into their callers' queues.

        Callers take turns, from the one after the site's last caller. Those whose earlier jobs of the site
        have not started are left out.
        """
        ...

    def fetches(self, job_ids: Sequence[str]) -> list[Fetch]:
        """Return those of the jobs that are in their callers' queues and will fetch their page."""
        ...

    def hold_back(self, jobs: Mapping[str, HeldBack]) -> None:
        """Take pending jobs out of their callers' queues until their sites let them go."""
        ...

    def defer_sites(self, waits_s: Mapping[str, float], failing: Collection[str]) -> None:
        """Let no job of a site leave for so many seconds, by site; `failing` ones are marked."""
        ...

    def held_back(self, job_ids: Sequence[str]) -> dict[str, HeldBack]:
        """Return those of the jobs that their site holds back, by id."""
        ...

    def blockers(self, job_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return, by job, the dependencies that are not done."""
        ...


class DependenciesTx(Protocol):
    """Row operations of dependencies between jobs."""

    def lock_dependencies(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Lock the caller's jobs among `job_ids`, note that others depend on them, return their statuses."""
        ...

    def insert_dependencies(self, job_ids: Sequence[str], depends_on: Sequence[str]) -> None:
        """Let each of `job_ids` depend on all of `depends_on`."""
        ...

    def has_cycle(self, job_ids: Sequence[str]) -> bool:
        """Return whether one of the jobs depends on one of them, directly or through others."""
        ...

    def block_jobs(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs wait for dependencies."""
        ...

    def lock_dependents(self, job_ids: Sequence[str]) -> list[str]:
        """Lock and return the pending jobs that depend on `job_ids`, directly or through others."""
        ...

    def fail_dependents(self, job_ids: Sequence[str]) -> None:
        """Fail those of the pending jobs that depend on a failed one, and what depends on them."""
        ...

    def unblock_jobs(self, job_ids: Sequence[str]) -> list[str]:
        """Clear the mark of those of the pending jobs whose dependencies are all done; return their ids."""
        ...

    def unmet_dependencies(self, job_id: str) -> dict[str, JobStatus]:
        """Lock the dependencies of a job that are not done and return their statuses."""
        ...
