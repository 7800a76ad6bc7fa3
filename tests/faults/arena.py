"""A stack to break things on: its site, its faults, and what was accepted on it so far."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import httpx

from local.faults.cloud import Cloud
from local.faults.control import FaultControl
from local.faults.invariants.report import URL_QUERY
from local.faults.invariants.violation import Accepted
from local.faults.sample_pages import Page, Size, write_page
from tests.support.stack import RunningStack, eventually

VISIBILITY_S: Final = 4
"""Visibility timeout of a message whose worker was killed; a worker's cold start is shorter."""
_SWEEP_EVERY_S: Final = 0.5


@dataclass
class Arena:
    """Belongs to one test session."""

    stack: RunningStack
    site_root: Path
    accepted: list[Accepted] = field(default_factory=list)
    """Everything that was answered with 202."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @cached_property
    def cloud(self) -> Cloud:
        return Cloud(asdict(self.stack))

    @property
    def control(self) -> FaultControl:
        return self.cloud.control

    def token(self, name: str) -> str:
        """Return a word that nothing else has in it."""
        return f"{name}{next(self._numbers):04}x"

    def page(self, token: str, size: Size = "small") -> Page:
        return write_page(self.site_root, token, size)

    def submit(
        self, page: Page, *, corpus: str = "faults", ends: str = "done", within_s: float = 20.0
    ) -> Accepted:
        """Submit until the service says 202, as a client does; its token is in every message of the job."""
        url = f"{self.stack.site}{page.path}{'&' if '?' in page.path else '?'}{URL_QUERY}{page.token}"
        with self.stack.http() as caller:
            caller.headers["X-Request-Id"] = page.token
            answer = eventually(lambda: _answered(caller, url, corpus), f"{url} is accepted", within_s)
        job = Accepted(answer.json()["job_id"], url, corpus, page.sentence if ends == "done" else "", ends)
        self.accepted.append(job)
        return job

    def statuses(self, jobs: Sequence[Accepted]) -> dict[str, str]:
        """Return where jobs are."""
        with self.cloud.database() as database:
            ids = [job.job_id for job in jobs]
            rows = database.execute("SELECT id, status FROM jobs WHERE id = ANY(%s)", (ids,)).fetchall()
        return dict(rows)

    def ended(self, jobs: Sequence[Accepted]) -> bool:
        found = self.statuses(jobs)
        return all(found.get(job.job_id) in ("done", "failed") for job in jobs)

    def end_with_sweeps(self, jobs: Sequence[Accepted], within_s: float = 30.0) -> None:
        """Wait until jobs are terminal, with sweeps that believe two minutes passed since the one before."""
        swept = 0.0

        def all_ended() -> bool:
            nonlocal swept
            if self.ended(jobs):
                return True
            if time.monotonic() - swept > _SWEEP_EVERY_S:
                self.cloud.pass_time()
                self.cloud.sweep()
                swept = time.monotonic()
            return False

        eventually(all_ended, "the jobs end", within_s)


def _answered(caller: httpx.Client, url: str, corpus: str) -> httpx.Response | None:
    answer = caller.post("/orchestrator/jobs", json={"url": url, "corpus_name": corpus})
    if answer.status_code == 202:
        return answer
    assert answer.status_code >= 500, answer.text
    return None
