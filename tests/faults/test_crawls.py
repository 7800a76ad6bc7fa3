"""A site that is crawled from one job, while the processes that crawl it are killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from indexmill.client import CrawlRules
from indexmill.contracts.http_actions import BatchSummary
from indexmill.contracts.job import Job, JobStatus
from local.faults.invariants.report import violations, wait_until_idle
from local.faults.rules import parse
from tests.faults.arena import VISIBILITY_S, Arena
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e

KILLS = (
    "OrchestratorResults/postgres.commit:kill_before#1x2",
    "OrchestratorResults/postgres.commit:kill_after#5x2",
    "ScraperWorker/sqs.SendMessageBatch@CallbacksQueue:kill_after#3",
    "ScraperWorker/sqs.SendMessageBatch@CallbacksQueue:kill_before#5",
)
_FANOUT = 7
_AT_WORK_S = 3.0
"""How long a function may take to send what it committed before the sweeper does; and to answer."""


@dataclass(frozen=True)
class CrawledSite:
    """A folder of the arena's site whose pages lead to each other, and the crawls of it."""

    arena: Arena
    name: str
    pages: int

    def write(self) -> None:
        """Write the pages: each leads to the next ones, to the first one and to itself."""
        for at in range(self.pages):
            further = range(at * _FANOUT + 1, min((at + 1) * _FANOUT + 1, self.pages))
            links = "".join(f'<a href="{to}.html#x">on</a>' for to in (*further, 0, at))
            text = f"<title>{at}</title><main><p>{self.name} page {at} has words.</p>{links}</main>"
            (self._folder / f"{at}.html").write_text(text, encoding="utf-8")

    @property
    def _folder(self) -> Path:
        folder = self.arena.site_root / self.name
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def paths(self) -> list[str]:
        return sorted(f"/{self.name}/{at}.html" for at in range(self.pages))

    def start(self) -> str:
        """Start a crawl; return its id."""
        rules = CrawlRules(depth=5, max_pages=1_000, include=[f"/{self.name}/*"])
        with self.arena.stack.client() as client:
            accepted = client.crawl(f"{self.arena.stack.site}/{self.name}/0.html", self.name, rules)
        assert accepted.batch_id is not None
        return accepted.batch_id

    def end(self, crawl_id: str, within_s: float) -> BatchSummary:
        """Wait for the end of a crawl, with sweeps each second in place of each minute."""
        wait_until_idle(self.arena.cloud, within_s, lease_s=_AT_WORK_S)
        with self.arena.stack.client() as client:
            return client.wait_batch(crawl_id, _AT_WORK_S)

    def jobs(self, crawl_id: str) -> list[Job]:
        """Return the jobs of a crawl."""
        with self.arena.stack.client() as client:
            page = client.list(batch_id=crawl_id, limit=200)
            assert page.next_cursor is None
            return page.jobs

    def visited(self, crawl_id: str) -> list[str]:
        return sorted(job.url.removeprefix(self.arena.stack.site) for job in self.jobs(crawl_id))


@pytest.fixture
def crawled(arena: Arena, request: pytest.FixtureRequest) -> CrawledSite:
    """Return a site; 40 pages, or as many as the test's parameter says."""
    made = CrawledSite(arena, arena.token("crawl"), getattr(request, "param", 40))
    made.write()
    return made


@pytest.mark.shows("P038")
@pytest.mark.parametrize(
    "crawled", [40, pytest.param(200, marks=pytest.mark.long)], indirect=True, ids=["40", "200"]
)
def test_a_crawl_whose_processes_are_killed_has_every_page_once(crawled: CrawledSite) -> None:
    arena = crawled.arena
    arena.cloud.set_visibility(VISIBILITY_S)
    arena.control.arm([parse(kill) for kill in KILLS])
    crawl_id = crawled.start()
    summary = crawled.end(crawl_id, 180)
    fired = {each["rule"] for each in arena.control.fired()}
    arena.control.arm()
    assert len(fired) == len(KILLS)
    assert (summary.total, summary.done, summary.failed) == (crawled.pages, crawled.pages, 0)
    assert crawled.visited(crawl_id) == crawled.paths
    quiet = wait_until_idle(arena.cloud, 60)
    assert quiet.reached, quiet
    assert [str(each) for each in violations(arena.cloud, [])] == []

    arena.control.arm(trace=True)
    embedded = arena.stack.stand_in_state("embeddings")["inputs"]
    again = crawled.end(crawled.start(), 180)
    assert again.done == crawled.pages
    jobs = crawled.jobs(again.batch_id)
    assert sorted(job.url.removeprefix(arena.stack.site) for job in jobs) == crawled.paths
    assert {(job.unchanged_because, job.status) for job in jobs} == {("not_modified", JobStatus.DONE)}
    asked = [each["place"] for each in arena.control.traced()]
    arena.control.arm()
    assert any("s3." in place or "sqs." in place for place in asked)
    assert [place for place in asked if "s3.Put" in place] == []
    assert arena.stack.stand_in_state("embeddings")["inputs"] == embedded


def test_a_canceled_crawl_gets_no_more_pages(crawled: CrawledSite) -> None:
    crawl_id = crawled.start()
    with crawled.arena.stack.client() as client:
        eventually(lambda: client.batch(crawl_id).total > 1, "the crawl has more than its first page", 60)
        client.cancel_batch(crawl_id, "enough")
        summary = client.wait_batch(crawl_id, 60)
        assert summary.crawl is not None
        assert summary.crawl.canceled
        assert summary.done + summary.failed_codes.get("canceled", 0) == summary.total
        assert wait_until_idle(crawled.arena.cloud, 60).reached
        assert client.batch(crawl_id).total == summary.total
