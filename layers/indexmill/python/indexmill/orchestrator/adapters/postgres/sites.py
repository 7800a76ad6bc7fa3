"""Rows of sites, and of the jobs that they hold back."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.adapters.postgres.reads import PostgresReads
from indexmill.orchestrator.admission.turns import Fetch, HeldBack, Released, SiteTurns

_NONE_DUE_S: Final = 1.0


class SiteRows(PostgresReads):
    """Row operations on them."""

    def lock_sites(self, sites: Sequence[str]) -> dict[str, SiteTurns]:
        """Lock and return the sites, which are made when they are new."""
        found = self._all("lock_sites", sites=sorted(sites))
        return {row["site"]: SiteTurns(**row) for row in found}

    def keep_sites(self, sites: Sequence[SiteTurns]) -> None:
        """Write the states of locked sites."""
        self._do(
            "keep_sites",
            sites=[each.site for each in sites],
            full_at=[each.full_at for each in sites],
            last_at=[each.last_at for each in sites],
            due_at=[each.due_at for each in sites],
            last_callers=[each.last_caller for each in sites],
        )

    def due_sites(self, most: int) -> list[SiteTurns]:
        """Lock and return sites whose next held-back job may leave."""
        now_s = time.monotonic()
        if now_s < self._paces.no_site_due_until_s:
            return []
        found = [SiteTurns(**row) for row in self._all("due_sites", most=most)]
        if not found:
            self._paces.no_site_due_until_s = now_s + _NONE_DUE_S
        return found

    def release_jobs(self, sites: Sequence[SiteTurns], counts: Sequence[int]) -> dict[str, Released]:
        """Put so many of each site's held-back jobs into their callers' queues, in their turn."""
        found = self._all(
            "release_jobs",
            sites=[each.site for each in sites],
            counts=list(counts),
            last_callers=[each.last_caller for each in sites],
        )
        return {row.pop("site"): Released(**row) for row in found}

    def fetches(self, job_ids: Sequence[str]) -> list[Fetch]:
        """Return those of the jobs that are in their callers' queues and will fetch their page."""
        return [Fetch(**row) for row in self._all("fetches", job_ids=list(job_ids), first=FIRST)]

    def hold_back(self, jobs: Mapping[str, HeldBack]) -> None:
        """Take pending jobs out of their callers' queues until their sites let them go."""
        self._do(
            "hold_back",
            job_ids=list(jobs),
            sites=[each.site for each in jobs.values()],
            eligible_at=[each.eligible_at for each in jobs.values()],
        )

    def defer_sites(self, waits_s: Mapping[str, float], failing: Collection[str]) -> None:
        """Let no job of a site leave for so many seconds, by site; `failing` ones are marked."""
        sites = sorted(waits_s)
        seconds = [waits_s[site] for site in sites]
        self._do("defer_sites", sites=sites, seconds=seconds, failing=[site in failing for site in sites])

    def held_back(self, job_ids: Sequence[str]) -> dict[str, HeldBack]:
        """Return those of the jobs that their site holds back, by id."""
        found = self._all("held_back", job_ids=list(job_ids))
        return {row.pop("id"): HeldBack(**row) for row in found}
