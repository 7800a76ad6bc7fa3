"""Soak test: all faults at random under load; then no job may be lost, stuck, wrong or duplicated."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import httpx
import psycopg

from indexmill.client import ApiError
from local.faults.cloud import Cloud
from local.faults.invariants.report import violations, wait_until_idle
from local.faults.invariants.violation import Accepted, Violation
from local.faults.rules import Rule
from local.faults.sample_pages import Size, write_page

CORPUS: Final = "soak"
_KILLED: Final = ("Orchestrator*/*", "ScraperWorker/*", "ChunkingWorker/*", "EmbeddingWorker/*")
_INJECTED: Final = ("worker_crashed", "timed_out")
"""Error codes that the kills themselves cause."""
_ENDPOINT_MODES: Final = ("429", "500", "503", "garbage", "wrong_count", "nan", "down")
_POLL_S: Final = 0.5
_LARGE_ONE_IN: Final = 25


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a soak."""

    jobs: int = 1000
    """Least number of accepted jobs."""
    kills: int = 300
    """Least number of SIGKILLs of functions' processes."""
    minutes: float = 15.0
    """Longest time of fault injection in minutes; the time to become idle comes after it."""
    kill_share: float = 0.006
    """Probability per external call of a function: with this, about one in thirty invocations."""
    postgres_every_s: float = 40.0
    """Interval between SIGKILLs of the database server; below 15 s the stack reaches its restart limit."""
    endpoint_faults_every_s: float = 60.0
    """The embedding endpoint fails for a few requests, and for at most `endpoint_fault_s`."""
    endpoint_fault_s: float = 3.0
    sweep_every_s: float = 10.0
    """Interval of extra sweeps: then an open breaker does not delay jobs by a whole minute."""
    open_jobs: int = 120
    """Number of jobs in flight at once."""
    visibility_s: int = 6
    idle_limit_s: float = 300.0
    """Longest time until the stack is idle; the sweeper runs each minute then, on its schedule."""
    seed: int = 1


@dataclass(slots=True)
class Counts:
    """Counters of a soak."""

    accepted: list[Accepted] = field(default_factory=list)
    refused: int = 0
    """Submits that were answered with 5xx or not at all, and repeated."""
    open: int = 0
    kills: int = 0
    postgres: int = 0
    endpoint_faults: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of the idle stack after a soak."""

    counts: Counts
    idle: bool
    idle_after_s: float
    violations: list[Violation]
    figures: dict[str, float]


Watch = Callable[[Counts], None]


class Soak:
    """One soak run; `site_root` is the folder that the stack's site serves."""

    def __init__(self, cloud: Cloud, site_root: Path, plan: Plan, watch: Watch = lambda _: None) -> None:
        self._cloud = cloud
        self._site_root = site_root
        self._plan = plan
        self._watch = watch
        self._random = random.Random(plan.seed)  # noqa: S311 - no cryptography
        self._counts = Counts()
        self._pages = 0
        self._broken_until = 0.0

    def run(self) -> Outcome:
        """Inject faults, remove them, wait until the stack is idle, and check it."""
        plan, counts = self._plan, self._counts
        self._cloud.set_visibility(plan.visibility_s)
        self._arm()
        began = reported_at = time.monotonic()
        postgres_at = began + plan.postgres_every_s
        endpoint_fault_at = began + plan.endpoint_faults_every_s
        sweep_at = began + plan.sweep_every_s
        while not self._is_enough() and (now := time.monotonic()) - began < plan.minutes * 60:
            if now > postgres_at:
                self._kill_postgres()
                postgres_at = now + plan.postgres_every_s
            if now > endpoint_fault_at:
                self._break_embeddings()
                # Not in step with an open breaker's probes, or each of them would fail.
                endpoint_fault_at = now + plan.endpoint_faults_every_s * self._random.uniform(0.5, 1.5)
            if self._broken_until and now > self._broken_until:
                self._set_endpoint_mode({"mode": "ok"})
                self._broken_until = 0.0
            if now > sweep_at:
                self._sweep()
                sweep_at = now + plan.sweep_every_s
            if now - reported_at > _POLL_S:
                self._report_progress(now - began)
                reported_at = now
            if counts.open < plan.open_jobs:
                self._submit()
            else:
                time.sleep(_POLL_S / 2)
        self._remove_faults()
        self._report_progress(time.monotonic() - began)
        return self._judge()

    def _is_enough(self) -> bool:
        return len(self._counts.accepted) >= self._plan.jobs and self._counts.kills >= self._plan.kills

    def _arm(self) -> None:
        share, most = self._plan.kill_share / 2, 10 * self._plan.kills
        self._cloud.control.arm(
            [
                Rule(place, kind, times=most, share=share, name=f"soak-{kind}-{number}")
                for number, place in enumerate(_KILLED)
                for kind in ("kill_before", "kill_after")
            ]
        )

    def _remove_faults(self) -> None:
        self._cloud.control.arm()
        self._set_endpoint_mode({"mode": "ok"})

    def _submit(self) -> None:
        self._pages += 1
        size: Size = "large" if self._pages % _LARGE_ONE_IN == 0 else "small"
        page = write_page(self._site_root, f"soak{self._pages:06}x", size)
        url = str(self._cloud.info["site"]) + page.path
        try:
            answer = self._cloud.client.submit(url, CORPUS)
        except ApiError as error:
            if error.status and error.status < 500:
                raise
            self._counts.refused += 1
            # The next try submits another page: this one may have left a job whose id was never received.
            return
        self._counts.accepted.append(Accepted(answer.job_id, url, CORPUS, page.sentence))
        self._counts.open += 1

    def _report_progress(self, seconds: float) -> None:
        counts = self._counts
        counts.seconds = seconds
        counts.kills = len(self._cloud.control.fired())
        with contextlib.suppress(psycopg.Error), self._cloud.database() as database:
            row = database.execute(
                "SELECT count(*) FROM jobs WHERE status NOT IN ('done', 'failed')"
            ).fetchone()
            counts.open = int(row[0]) if row else 0
        self._watch(counts)

    def _kill_postgres(self) -> None:
        with contextlib.suppress(httpx.HTTPError, KeyError, TypeError, ProcessLookupError):
            status = httpx.get(f"{self._cloud.info['control']}/status", timeout=10.0).json()
            os.kill(status["services"]["postgres"]["pid"], signal.SIGKILL)
            self._counts.postgres += 1

    def _sweep(self) -> None:
        # This request may fail as well, and Postgres may be down.
        with contextlib.suppress(httpx.HTTPError, RuntimeError):
            self._cloud.sweep()

    def _break_embeddings(self) -> None:
        self._set_endpoint_mode(
            {"mode": self._random.choice(_ENDPOINT_MODES), "times": self._random.randint(1, 3)}
        )
        # Limited by requests alone, an open breaker, which probes once in 30 s, would fail for minutes.
        self._broken_until = time.monotonic() + self._plan.endpoint_fault_s
        self._counts.endpoint_faults += 1

    def _set_endpoint_mode(self, fault: dict[str, object]) -> None:
        base = str(self._cloud.info["embeddings"]).removesuffix("/v1")
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(f"{base}/control", json=fault, timeout=10.0)

    def _judge(self) -> Outcome:
        began = time.monotonic()
        idle = wait_until_idle(
            self._cloud,
            self._plan.idle_limit_s,
            sweep=False,
            on_check=lambda now: self._count_open(now.open_jobs),
        )
        idle_after_s = time.monotonic() - began
        # Counted before the checks: each search for a sentence needs an embedding.
        figures = self._figures()
        return Outcome(
            counts=self._counts,
            idle=idle.reached,
            idle_after_s=idle_after_s,
            violations=violations(self._cloud, self._as_they_may_end()),
            figures=figures,
        )

    def _as_they_may_end(self) -> list[Accepted]:
        """Return the jobs, with those allowed to fail whose processes were killed up to the retry limit."""
        with self._cloud.database() as database:
            statement = "SELECT id FROM jobs WHERE status = 'failed' AND error->>'cause' = ANY(%s)"
            given_up = {row[0] for row in database.execute(statement, (list(_INJECTED),)).fetchall()}
        return [
            replace(each, ends="failed") if each.job_id in given_up else each
            for each in self._counts.accepted
        ]

    def _count_open(self, open_jobs: int) -> None:
        self._counts.open = open_jobs
        self._watch(self._counts)

    def _figures(self) -> dict[str, float]:
        """Return executions per job, embeddings per chunk, and terminal statuses of the jobs."""
        with self._cloud.database() as database:
            ends = dict(database.execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall())
            (chunks,) = database.execute("SELECT count(*) FROM chunks").fetchone() or (0,)
            codes = database.execute(
                "SELECT coalesce(error->>'cause', error->>'code'), count(*) FROM jobs"
                " WHERE status = 'failed' GROUP BY 1"
            ).fetchall()
        total = max(1, sum(ends.values()))
        site = f"{self._cloud.info['site']}/control"
        fetched: dict[str, int] = httpx.get(site, timeout=10.0).json()["requests"]
        pages = sum(count for path, count in fetched.items() if path.startswith("/pages/"))
        base = str(self._cloud.info["embeddings"]).removesuffix("/v1")
        inputs = httpx.get(f"{base}/control", timeout=10.0).json()["inputs"]
        functions = httpx.get(f"{self._cloud.info['control']}/status", timeout=10.0).json()["functions"]
        invocations = sum(each["invocations"] for each in functions.values())
        return {
            "jobs": total,
            "done_percent": 100.0 * ends.get("done", 0) / total,
            "kills_percent_of_invocations": 100.0 * self._counts.kills / max(1, invocations),
            "executions_per_job": pages / total,
            "embeddings_per_chunk": inputs / max(1, chunks),
            **{f"failed with {code}": count for code, count in codes},
        }
