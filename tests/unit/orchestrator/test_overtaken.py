"""Messages lost among thousands: moving messages hide the loss from the count, but others overtake it."""

from __future__ import annotations

import pytest

from indexmill.contracts.messages import ScrapeTask, read
from tests.support.jobs import embedded, scraped
from tests.support.sweeper import TICK_S, SweeperHarness

LOST, EACH_MINUTE, UNDER_WAY = 5, 40, 20


class Harness(SweeperHarness):
    """Every minute as much comes as is done, and always more is under way than was lost."""

    def minute(self, jobs: int = EACH_MINUTE) -> dict[str, int]:
        """Advance a minute: submit, process all but what is under way, and sweep meanwhile."""
        self.clock.tick(TICK_S)
        for _ in range(jobs):
            self.submit()
        most = len(self.scrape.bodies) - UNDER_WAY
        taken, self.scrape.bodies[:] = self.scrape.bodies[:most], self.scrape.bodies[most:]
        ids = [read(ScrapeTask, body).job_id or "" for body in taken]
        self.clock.tick(1)
        self.deliver(*(scraped(job_id) for job_id in ids))
        self.deliver(*(embedded(job_id) for job_id in ids))
        self.embed.bodies.clear()
        return self.sweep()

    def incident(self, kind: str) -> object:
        return self.view.open_incidents.get(kind, {})


@pytest.fixture
def harness() -> Harness:
    found = Harness()
    found.minute()
    found.minute()
    return found


def test_a_loss_in_a_stream_is_noticed_within_five_minutes_and_nothing_else_sent(harness: Harness) -> None:
    lost = [harness.submit() for _ in range(LOST)]
    del harness.scrape.bodies[-LOST:]
    ticks = [harness.minute() for _ in range(5)]
    assert harness.incident("messages_missing") == {}
    assert harness.incident("jobs_passed") == {"scraping": {"jobs": LOST}}
    assert {tick["lost"] for tick in ticks} == {0}
    assert {harness.status(job_id) for job_id in lost} == {"scraping"}


def test_the_incident_closes_when_their_results_arrive(harness: Harness) -> None:
    lost = [harness.submit() for _ in range(LOST)]
    del harness.scrape.bodies[-LOST:]
    assert [harness.minute()["overtaken"] for _ in range(5)][-1] == LOST
    harness.deliver(*(scraped(job_id) for job_id in lost))
    assert harness.minute()["overtaken"] == 0
    assert harness.incident("jobs_passed") == {}


def test_a_stream_without_a_loss_is_not_suspected(harness: Harness) -> None:
    assert {harness.minute()["overtaken"] for _ in range(6)} == {0}
    assert harness.incident("jobs_passed") == {}


def test_one_count_is_not_enough(harness: Harness) -> None:
    harness.submit()
    harness.scrape.bodies.pop()
    seen = []
    for _ in range(5):
        reported = harness.minute()["overtaken"]
        seen.append((harness.view.count_overtaken(harness.view.now()).get("scraping", 0), reported))
    first = [by_now for by_now, _ in seen].index(1)
    assert seen[first : first + 2] == [(1, 0), (1, 1)]
