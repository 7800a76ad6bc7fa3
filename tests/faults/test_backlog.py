"""Fifty messages are lost from a real queue with thousands: found in minutes, and no others sent again.

Every time-out, visibility timeout and schedule is the template's own. Only admission differs, since
by default one caller has half of a window of 20 jobs a core in flight: then no queue is that long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString

import httpx
import psycopg
import pytest

from local.faults.cloud import Cloud
from local.faults.invariants.report import violations, wait_until_idle
from local.faults.invariants.violation import Accepted, Database
from local.faults.sample_pages import Page, write_page
from tests.support.stack import RunningStack, eventually, open_folder, running_stack

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.timeout(1500)]

BACKLOG: Final = 5_000
LOST: Final = 50
NOTICED_S: Final = 300.0
_BATCH: Final = 100
_AT_ONCE: Final = 10
_CORPUS: Final = "backlog"
_ALL_END_S: Final = 900.0
_LEAST_QUEUED: Final = 300
_EXECUTIONS: Final = 1.01

_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
_OPEN: Final = "SELECT count(*) FROM jobs WHERE status NOT IN ('done', 'failed')"
_NOTICED: Final = """
SELECT extract(epoch FROM opened_at)::float8, kind, detail FROM incidents
WHERE kind IN ('messages_missing', 'jobs_passed') AND subject = 'scraping' ORDER BY opened_at
"""
_AGAIN: Final = "SELECT job_id, rescues FROM outbox WHERE rescues > 0"
_ENDS: Final = "SELECT status, count(*) FROM jobs GROUP BY status"

log = logging.getLogger(__name__)


@dataclass
class Run:
    """A backlog of 5,000 jobs on a stack of its own."""

    stack: RunningStack
    cloud: Cloud
    database: Database
    jobs: dict[str, Page] = field(default_factory=dict)
    """By id."""

    def stop_polling(self) -> None:
        """Switch the scraper's event source off at once; a sweep switches it on again."""
        found = self.cloud.functions.list_event_source_mappings(FunctionName="ScraperWorker")
        for mapping in found["EventSourceMappings"]:
            self.cloud.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)

    def fill(self, pages: list[Page]) -> None:
        """Submit all, held back; the operator's pause comes last, for with it nothing would be admitted."""
        for start in range(0, len(pages), _BATCH):
            self.stop_polling()
            some = pages[start : start + _BATCH]
            answer = self.cloud.client.submit([self.stack.site + page.path for page in some], _CORPUS)
            self.jobs |= dict(zip(answer.job_ids or (), some, strict=True))
        self.database.execute(
            "INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'a backlog', 'me')"
        )
        self.stop_polling()

    def take_away(self) -> set[str]:
        """Delete messages from the queue without any notice; return their jobs."""
        url = self.stack.resources["ScrapeQueue"]
        gone: set[str] = set()
        while len(gone) < LOST:
            found = self.cloud.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=_AT_ONCE)["Messages"]
            for message in found:
                self.cloud.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                gone.add(message["Body"].partition('"job_id":"')[2].partition('"')[0])
        return gone

    def resume(self) -> None:
        """Let the next sweep of the schedule resume the stage."""
        self.database.execute("DELETE FROM pauses")

    def one(self, statement: LiteralString) -> Any:
        """Return the only value of the only row."""
        [(value,)] = self.database.execute(statement).fetchall()
        return value

    def executions(self) -> float:
        """Return the requests to the site's pages, per job."""
        asked: dict[str, int] = httpx.get(f"{self.stack.site}/control", timeout=10.0).json()["requests"]
        return sum(count for path, count in asked.items() if path.startswith("/pages/")) / len(self.jobs)

    def accepted(self, sought: set[str]) -> list[Accepted]:
        """Return all jobs; the documents of those `sought` must be found by their sentences."""
        return [
            Accepted(job_id, self.stack.site + page.path, _CORPUS, page.sentence if job_id in sought else "")
            for job_id, page in self.jobs.items()
        ]


@pytest.fixture
def site() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(("DispatchWindow=12000",), id="all-in-the-queue"),
        pytest.param(("DispatchWindow=800",), id="four-hundred-in-the-queue"),
    ],
)
def test_fifty_lost_messages_are_noticed_and_only_they_are_sent_again(
    site: Path, window: tuple[str, ...]
) -> None:
    pages = [write_page(site, f"backlog{number:05}x") for number in range(BACKLOG)]
    with running_stack("QuotaEnterprise=unlimited", *window, site_root=site) as stack:
        cloud = Cloud(asdict(stack))
        with psycopg.connect(stack.database_url, autocommit=True) as database:
            check(Run(stack, cloud, database), pages)
        cloud.close()


def check(run: Run, pages: list[Page]) -> None:
    run.fill(pages)
    queued = run.cloud.depths()["ScrapeQueue"]
    lost, deleted = run.take_away(), run.one(_NOW)
    run.resume()
    eventually(lambda: run.database.execute(_NOTICED).fetchall() or None, "it is noticed", NOTICED_S)
    eventually(lambda: run.one(_OPEN) == 0, "all jobs end", _ALL_END_S)
    took = run.one(_NOW) - deleted
    incidents = run.database.execute(_NOTICED).fetchall()
    noticed = incidents[0][0]
    reported = [f"{kind} {detail} after {at - deleted:.0f} s" for at, kind, detail in incidents]
    again: dict[str, int] = dict(run.database.execute(_AGAIN).fetchall())
    ends: dict[str, int] = dict(run.database.execute(_ENDS).fetchall())
    executions = run.executions()
    log.info(
        "%d messages in the queue, %d deleted: %s; %d sent again, %d of them lost; all ended after %.0f s:"
        " %s; executions per job %.4f",
        *(queued, len(lost), "; ".join(reported), sum(again.values()), len(lost & set(again))),
        *(took, ends, executions),
    )
    assert queued >= _LEAST_QUEUED
    assert noticed - deleted <= NOTICED_S
    assert ends == {"done": BACKLOG}
    assert again == dict.fromkeys(lost, 1)
    assert executions <= _EXECUTIONS
    assert wait_until_idle(run.cloud, 60, sweep=False).reached
    assert [str(each) for each in violations(run.cloud, run.accepted(lost))] == []
