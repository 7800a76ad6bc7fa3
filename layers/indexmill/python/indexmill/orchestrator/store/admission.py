"""Rows of a submit and of admission: keys, aliases, new jobs, dependencies, quotas, queues, sites."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final

from psycopg.types.json import Jsonb

from indexmill.contracts.cost import Amounts
from indexmill.contracts.errors import full_corpus
from indexmill.contracts.identity import TIERS, Quota, Usage
from indexmill.contracts.job import JobStatus
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.store.rows import (
    SHARED,
    CallerQueue,
    Candidate,
    CorpusMoved,
    Fetch,
    GlobalUsage,
    HeldBack,
    InFlight,
    NewJob,
    OutboxRow,
    Pace,
    Released,
    Row,
    SiteStarts,
    as_in_flight,
)
from indexmill.platform.limits.store import Load
from indexmill.platform.postgres.database import Statements, json_of
from indexmill.platform.security.urls import DomainRates

INTERNAL: Final = "internal"
"""Tier of jobs of the system's own callers, which have no quota."""
MOST: Final = 200
"""Jobs of one caller that start in one transaction."""
REMEMBERED: Final = 15
"""Started jobs of the last hour beyond which the usage penalty does not grow."""
LAST: Final = 40
"""Jobs done last from which the pace is measured; more would include quieter or busier hours."""
_PACE_KNOWN_S: Final = 1.0
_NONE_DUE_S: Final = 1.0
"""Columns that are the same for all jobs of a submit."""
_NONE: Final = Quota()


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of jobs: quotas by tier, and those of all callers together; without arguments there is none."""

    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """By tier."""
    window: int = 1_000_000
    """Jobs of all callers together that are started and not ended."""
    max_pending: int = 10_000
    """Jobs of one caller that may wait; further ones are refused."""
    rates: DomainRates = field(default_factory=DomainRates)
    """Of sites."""
    per_caller: int | None = None
    """Jobs in flight of one caller, whatever its quota: the rest of the window is left to others."""

    def of(self, tier: str) -> Quota:
        """Return the quota of a tier, within the share of one caller."""
        quota = self.quotas.get(tier, _NONE)
        if self.per_caller is None or (quota.max_active is not None and quota.max_active <= self.per_caller):
            return quota
        return quota.model_copy(update={"max_active": self.per_caller})


@dataclass(slots=True)
class PaceCache:
    """Cache of reads that hold for a moment; times are of the monotonic clock."""

    pace: Pace = field(default_factory=Pace)
    until_s: float = 0.0
    no_site_due_until_s: float = 0.0


class Admission:
    """Row operations from a submit to the start of its jobs, with the sites that hold some back."""

    _sql: Statements
    _limits: JobLimits
    _paces: PaceCache

    @property
    def limits(self) -> JobLimits:
        """The configured quotas and bounds."""
        return self._limits

    # A submit

    def take_key(self, caller_id: str, key: str, digest: str) -> bool:
        """Claim an idempotency key; a concurrent second submit waits here for the first one's commit."""
        return self._sql.one("take_key", caller_id=caller_id, key=key, digest=digest) is not None

    def kept_answer(self, caller_id: str, key: str) -> tuple[str, str] | None:
        """Return digest and answer of the request that used the key."""
        row = self._sql.one("kept_answer", caller_id=caller_id, key=key)
        return (row["digest"], row["answer"]) if row else None

    def keep_answer(self, caller_id: str, key: str, answer: str) -> None:
        """Keep the answer (JSON) under its key."""
        self._sql.do("keep_answer", caller_id=caller_id, key=key, answer=answer)

    def root_of(self, caller_id: str) -> str:
        """Return the caller that has the jobs of `caller_id`: the one that it is an alias of, or itself."""
        row = self._sql.one("root_of", caller_id=caller_id)
        return str(row["root"]) if row else caller_id

    def add_alias(self, alias: str, root: str) -> None:
        """Record that `alias` is another id of `root`; a known id stays as it is."""
        self._sql.do("add_alias", alias=alias, root=root)

    def insert_jobs(
        self, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None], spent: Amounts
    ) -> set[str]:
        """Insert pending jobs with history and message; return the ids of those that were inserted.

        Each has `spent` on its receipt. Left out are unforced jobs of documents that another one is in flight
        for, and all of an alias. A message gets what is known of its document. Raises CorpusMoved,
        and for a submit CallerError(quota_exceeded).
        """
        new, target = jobs[0], jobs[0].target
        found = self._sql.all(
            "insert_jobs",
            job_ids=[job.job_id for job in jobs],
            urls=[job.submitted_url for job in jobs],
            canonical=[job.target.url for job in jobs],
            documents=[job.target.document_id for job in jobs],
            outbox_ids=[job.first.id for job in jobs],
            payloads=[job.first.payload for job in jobs],
            priorities=[job.priority for job in jobs],
            forced_jobs=[job.forced for job in jobs],
            expected=[expected[job.job_id] for job in jobs],
            digests=[job.payload_digest for job in jobs],
            given=[json_of(job.given) for job in jobs],
            sites=[job.site for job in jobs],
            eligible=[job.eligible_at for job in jobs],
            owner=new.corpus_owner,
            most_chunks=self._limits.of(new.tier).corpus_chunks,
            asked=len(jobs),
            corpus_key=target.corpus_key,
            caller_id=target.caller_id,
            corpus_name=target.corpus_name,
            batch_id=new.batch_id,
            replay_of=new.replay_of,
            kind=new.kind,
            linked=new.linked,
            **{
                **{name: getattr(new, name) for name in SHARED},
                "budget": json_of(new.budget),
                "recipe": None if new.recipe is None else Jsonb(new.recipe),
                "metadata": None if new.metadata is None else Jsonb(new.metadata),
            },
            first=FIRST,
            spent=Jsonb(spent),
        )
        if (key := found[0]["corpus_key"]) != target.corpus_key:
            raise CorpusMoved(key)
        if found[0]["full"] and new.corpus_owner is not None:
            raise full_corpus()
        return {row["id"] for row in found if row["id"] is not None}

    def jobs_in_flight(self, document_ids: Sequence[str], job_ids: Sequence[str] = ()) -> list[InFlight]:
        """Return the unforced jobs in flight for the documents, and the jobs `job_ids` whatever they are."""
        found = self._sql.all("jobs_in_flight", documents=list(document_ids), job_ids=list(job_ids))
        return [as_in_flight(row) for row in found]

    # Dependencies

    def lock_dependencies(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Lock the caller's jobs among `job_ids`, note that others depend on them, return their statuses."""
        return self._statuses("lock_dependencies", caller_id=caller_id, job_ids=list(job_ids))

    def insert_dependencies(self, job_ids: Sequence[str], depends_on: Sequence[str]) -> None:
        """Let each of `job_ids` depend on all of `depends_on`."""
        self._sql.do("insert_dependencies", job_ids=list(job_ids), depends_on=list(depends_on))

    def has_cycle(self, job_ids: Sequence[str]) -> bool:
        """Return whether one of the jobs depends on one of them, directly or through others."""
        return self._sql.found("has_cycle", job_ids=list(job_ids))

    def block_jobs(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs wait for dependencies."""
        self._sql.do("block_jobs", job_ids=list(job_ids))

    def lock_dependents(self, job_ids: Sequence[str]) -> list[str]:
        """Lock and return the pending jobs that depend on `job_ids`, directly or through others."""
        return [row["id"] for row in self._sql.all("lock_dependents", job_ids=list(job_ids))]

    def fail_dependents(self, job_ids: Sequence[str]) -> None:
        """Fail those of the pending jobs that depend on a failed one, and what depends on them."""
        self._sql.do("fail_dependents", job_ids=list(job_ids), first=FIRST)

    def unblock_jobs(self, job_ids: Sequence[str]) -> list[str]:
        """Clear the mark of those of the pending jobs whose dependencies are all done; return their ids."""
        return [row["id"] for row in self._sql.all("unblock_jobs", job_ids=list(job_ids))]

    def unmet_dependencies(self, job_id: str) -> dict[str, JobStatus]:
        """Lock the dependencies of a job that are not done and return their statuses."""
        return self._statuses("unmet_dependencies", job_id=job_id)

    def blockers(self, job_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return, by job, the dependencies that are not done."""
        return {row["job_id"]: row["blocked_by"] for row in self._sql.all("blockers", job_ids=list(job_ids))}

    def _statuses(self, name: str, **values: Any) -> dict[str, JobStatus]:
        return {row["id"]: JobStatus(row["status"]) for row in self._sql.all(name, **values)}

    # Quotas and queues of callers

    def usage(self, caller_id: str, tier: str) -> tuple[Usage, GlobalUsage, int]:
        """Return the usage of the caller and of all callers, and its pending jobs; counted to the limits."""
        quota = self._limits.of(tier)
        row = self._sql.one(
            "usage",
            caller_id=caller_id,
            tier=tier,
            max_active=quota.max_active,
            remembered=_remembered(quota),
            window=self._limits.window,
            most=self._limits.max_pending + 1,
        )
        if row is None:
            raise LookupError(tier)
        return *_usage(row), row["pending"]

    def load(self, most: int) -> Load:
        """Return how many jobs of all callers are pending or in flight, counted up to `most` each.

        The age is that of the job which has waited longest for capacity: its caller's quota, its dependencies
        and no operator keep it waiting.
        """
        row = self._sql.one("load", most=most)
        return Load(row["depth"], row["age_s"] or 0.0) if row else Load(0)

    def pace(self) -> Pace:
        """Return how fast jobs went lately, read at most once a second."""
        now_s = time.monotonic()
        if now_s >= self._paces.until_s:
            row = self._sql.one("pace", last=LAST)
            self._paces.pace = Pace(**row) if row else Pace()
            self._paces.until_s = now_s + _PACE_KNOWN_S
        return self._paces.pace

    def queues_to_admit(
        self, callers: Sequence[str], done: Sequence[str]
    ) -> tuple[list[CallerQueue], GlobalUsage] | None:
        """Lock the callers, and others that wait for capacity, and return their queues; None without any.

        `done` are jobs that were done in this transaction, whose chunks count against daily quotas.
        """
        quotas = {tier: self._limits.of(tier) for tier in (*TIERS, INTERNAL)}
        found = self._sql.all(
            "queues_to_admit",
            callers=list(callers),
            done=list(done),
            daily=[tier for tier, quota in quotas.items() if quota.chunks_per_day is not None],
            tiers=list(quotas),
            max_active=[quota.max_active for quota in quotas.values()],
            remembered=[_remembered(quota) for quota in quotas.values()],
            window=self._limits.window,
            most=MOST,
        )
        if not found:
            return None
        _, overall = _usage(found[0])
        return [_queue(row) for row in found], overall

    def start_jobs(self, job_ids: Sequence[str], spent: Amounts) -> list[OutboxRow]:
        """Admit the pending jobs and return their messages in the same order, claimed by this process.

        Each has `spent` on its receipt.
        """
        started = self._sql.all("start_jobs", job_ids=list(job_ids), first=FIRST, spent=Jsonb(spent))
        order = {job_id: at for at, job_id in enumerate(job_ids)}
        return sorted((OutboxRow(**row) for row in started), key=lambda row: order[row.job_id])

    def mark_waiting_for_capacity(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs would start with more capacity."""
        self._sql.do("mark_waiting_for_capacity", job_ids=list(job_ids))

    def clear_waiting_for_capacity(self, callers: Sequence[str]) -> None:
        """Clear that mark for the callers' pending jobs."""
        self._sql.do("clear_waiting_for_capacity", callers=list(callers))

    def waiting_callers(self) -> list[str]:
        """Return the callers with a pending job that no dependency blocks."""
        return [row["caller_id"] for row in self._sql.all("waiting_callers")]

    def positions(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return position (1 is next) and tier of those of the jobs that are in the caller's queue."""
        # Many positions are one walk along the queue, one is a count.
        name = "positions" if len(job_ids) > 1 else "position"
        found = self._sql.all(name, caller_id=caller_id, job_ids=list(job_ids))
        return {row["id"]: (row["position"], row["tier"]) for row in found}

    # Sites, and the jobs that they hold back

    def lock_sites(self, sites: Sequence[str]) -> dict[str, SiteStarts]:
        """Lock and return the sites, which are made when they are new."""
        found = self._sql.all("lock_sites", sites=sorted(sites))
        return {row["site"]: SiteStarts(**row) for row in found}

    def keep_sites(self, sites: Sequence[SiteStarts]) -> None:
        """Write the states of locked sites."""
        self._sql.do(
            "keep_sites",
            sites=[each.site for each in sites],
            full_at=[each.full_at for each in sites],
            last_at=[each.last_at for each in sites],
            due_at=[each.due_at for each in sites],
            last_callers=[each.last_caller for each in sites],
        )

    def due_sites(self, most: int) -> list[SiteStarts]:
        """Lock and return sites whose next held-back job may leave; those that are locked are left out.

        A look that finds none is not repeated within a second by the same process.
        """
        now_s = time.monotonic()
        if now_s < self._paces.no_site_due_until_s:
            return []
        found = [SiteStarts(**row) for row in self._sql.all("due_sites", most=most)]
        if not found:
            self._paces.no_site_due_until_s = now_s + _NONE_DUE_S
        return found

    def release_jobs(self, sites: Sequence[SiteStarts], counts: Sequence[int]) -> dict[str, Released]:
        """Put so many of each site's held-back jobs into their callers' queues.

        Callers take turns, from the one after the site's last caller. Those whose earlier jobs of the site
        have not started are left out.
        """
        found = self._sql.all(
            "release_jobs",
            sites=[each.site for each in sites],
            counts=list(counts),
            last_callers=[each.last_caller for each in sites],
        )
        return {row.pop("site"): Released(**row) for row in found}

    def fetches(self, job_ids: Sequence[str]) -> list[Fetch]:
        """Return those of the jobs that are in their callers' queues and will fetch their page."""
        return [Fetch(**row) for row in self._sql.all("fetches", job_ids=list(job_ids), first=FIRST)]

    def hold_back(self, jobs: Mapping[str, HeldBack]) -> None:
        """Take pending jobs out of their callers' queues until their sites let them go."""
        self._sql.do(
            "hold_back",
            job_ids=list(jobs),
            sites=[each.site for each in jobs.values()],
            eligible_at=[each.eligible_at for each in jobs.values()],
        )

    def defer_sites(self, waits_s: Mapping[str, float], failing: Collection[str]) -> None:
        """Let no job of a site leave for so many seconds, by site; `failing` ones are marked."""
        sites = sorted(waits_s)
        seconds = [waits_s[site] for site in sites]
        self._sql.do("defer_sites", sites=sites, seconds=seconds, failing=[site in failing for site in sites])

    def held_back(self, job_ids: Sequence[str]) -> dict[str, HeldBack]:
        """Return those of the jobs that their site holds back, by id."""
        found = self._sql.all("held_back", job_ids=list(job_ids))
        return {row.pop("id"): HeldBack(**row) for row in found}


def _remembered(quota: Quota) -> int:
    """Return how many starts of the last hour are counted."""
    return max(REMEMBERED, quota.max_per_hour or 0, quota.burst or 0)


def _usage(row: Row) -> tuple[Usage, GlobalUsage]:
    """Return the caller's usage and that of all callers."""
    return (
        Usage(**{each.name: row[each.name] for each in fields(Usage)}),
        GlobalUsage(row["now"].astimezone(UTC), row["all_active"], row["all_callers"], row["paused"]),
    )


def _queue(row: Row) -> CallerQueue:
    usage, _ = _usage(row)
    columns: Iterable[Sequence[Any]] = (row[name] or () for name in ("ids", "priorities", "since"))
    return CallerQueue(usage, [Candidate(*each) for each in zip(*columns, strict=True)])
