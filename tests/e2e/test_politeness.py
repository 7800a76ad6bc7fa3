"""Pace of sites on a running stack, as the sites see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from indexmill.client import Client
from tests.support.stack import RunningStack, eventually, running_stack
from tests.support.timed_site import TimedSite, excess, timed_site

pytestmark = pytest.mark.e2e

RATE, BURST = 3.0, 3
PAGES = 12
LATE_S = 1.0
"""A request may reach its site this much after its turn, on a busy machine."""


@dataclass
class Web:
    """Two sites with a pace, and the stack that visits them."""

    stack: RunningStack
    steady: TimedSite
    slow: TimedSite


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    """Yield a site with three requests a second, and one with a request in 50 seconds."""
    with timed_site() as steady, timed_site() as slow:
        rates = f"{steady.host}={RATE:g}:{BURST},{slow.host}=0.02"
        hosts = f"AllowedPrivateHosts={steady.host},{slow.host}"
        with running_stack(hosts, f"DomainRates={rates}") as stack:
            yield Web(stack, steady, slow)


def test_a_site_sees_no_more_than_its_rate_and_every_page_is_done(web: Web) -> None:
    client: Client = web.stack.client()
    accepted = client.submit([web.steady.url(at) for at in range(PAGES)], "polite")
    jobs = client.wait(accepted.job_ids or [], 90.0)
    assert [job.status for job in jobs] == ["done"] * PAGES
    assert len(web.steady.page_times()) == PAGES
    assert excess(web.steady.asked, RATE, BURST) <= LATE_S * RATE
    # robots.txt is a request of the site as well.
    assert max(web.steady.asked) - min(web.steady.asked) >= (PAGES + 1 - BURST) / RATE - LATE_S


@pytest.mark.shows("X20")
def test_what_a_site_has_no_time_for_is_pending_for_that_reason(web: Web) -> None:
    client: Client = web.stack.client()
    ids = client.submit([web.slow.url(at) for at in range(3)], "polite").job_ids or []

    def held() -> list[str]:
        jobs = [client.get(each) for each in ids]
        return [job.job_id for job in jobs if job.waiting and job.waiting.reason == "domain"]

    waits = eventually(held, "jobs wait for their site")
    assert len(waits) == 2
    job = client.get(waits[0])
    assert job.status == "pending"
    assert job.waiting is not None
    assert job.waiting.next_eligible_at is not None
    assert client.cancel(waits[0], "not needed").status == "failed"
    with web.stack.http() as http:
        refused = http.post("/scraper/scrape", json={"url": web.slow.url("now")})
    assert refused.status_code == 503
    error = refused.json()["error"]
    assert error["code"] == "domain_busy"
    assert refused.headers["Retry-After"] == str(error["retry_after"])
    assert 1 <= error["retry_after"] <= 150
    assert "/now" not in web.slow.paths
