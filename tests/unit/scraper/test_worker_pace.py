"""Finished pages are reported while slow ones load, waits are reported, pages without time are not tried."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from indexmill.contracts.errors import BreakerOpen, DomainBusy, ErrorCode, failure
from indexmill.contracts.messages import StageFailure, StageResult, read
from indexmill.contracts.pipeline import BY_NAME
from indexmill.platform.consumer.deliveries import BatchReporter, Done, RecordTimes, Retry, Wait, WorkerStage
from indexmill.scraper.adapters.answer import status_failure
from indexmill.scraper.ports import Fetched
from indexmill.scraper.worker import ScrapeBatch
from tests.support.scraper import SITE, ScraperHarness, delivery
from tests.twins.queues import InMemoryQueue


class Harness:
    """A worker whose page /slow ends when everything else was reported."""

    def __init__(self) -> None:
        self.scraper = ScraperHarness()
        self.queue, self.source = InMemoryQueue(), InMemoryQueue()
        self.batch = ScrapeBatch(self.scraper.parts(), self.queue, self.source)
        self.quick = self.scraper.fetcher.fetch
        self.awaited = 0
        self.seen: list[int] = []
        self.scraper.fetcher.fetch = self.fetch  # type: ignore[method-assign]

    async def fetch(self, url: str, *, deadline: float, **options: object) -> Fetched:
        if not url.endswith("/slow"):
            return await self.quick(url, deadline=deadline)
        async with asyncio.timeout(10):
            while len(self.queue.bodies) < self.awaited:
                await asyncio.sleep(0.01)
        self.seen.append(len(self.source.deleted))
        return Fetched(url, 200, "text/plain", None, b"slow words")

    def reports(self) -> list[tuple[str, str]]:
        found = [read(StageResult, body) for body in self.queue.bodies]
        return [(result.message_id, result.status) for result in found]


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    for name in ("a", "b", "c"):
        made.scraper.fetcher.pages[f"{SITE}/{name}"] = "<p>Words."
    yield made
    made.batch.close()


@pytest.mark.fault("F8")
def test_finished_pages_are_reported_and_deleted_while_a_slow_one_loads(harness: Harness) -> None:
    harness.awaited = 4
    harness.scraper.fetcher.pages[f"{SITE}/later"] = failure(ErrorCode.READ_TIMEOUT)
    paths = ["/a", "/slow", "/b", "/later", "/c"]
    outcomes = harness.batch([delivery(path) for path in paths])
    assert [type(outcome) for outcome in outcomes] == [Done, Done, Done, Retry, Done]
    assert harness.source.deleted == ["r/a", "r/b", "r/c"]
    reports = [(f"m/{name}:result", "success") for name in ("a", "b", "c", "slow")]
    assert harness.reports() == [*reports[:2], ("m/later:retrying:1", "retrying"), *reports[2:]]


def test_pages_that_are_all_quick_are_reported_by_one_call_and_deleted_by_none(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    send = harness.queue.send

    def counted(bodies: list[str]) -> list[int]:
        calls.append(len(bodies))
        return send(bodies)

    monkeypatch.setattr(harness.queue, "send", counted)
    assert harness.batch([delivery(path) for path in ("/a", "/b", "/c")]) == [Done()] * 3
    assert (calls, harness.source.deleted) == ([3], [])


def test_a_page_whose_early_result_was_not_sent_is_not_deleted(harness: Harness) -> None:
    harness.awaited = 2
    harness.queue.refuse = {1}
    outcomes = harness.batch([delivery(path) for path in ("/a", "/b", "/slow", "/c")])
    assert outcomes == [Done(), Wait(1.0, "queue_unavailable"), Done(), Done()]
    assert harness.source.deleted == ["r/a", "r/c"]


def test_an_unavailable_source_costs_only_early_deletes(harness: Harness) -> None:
    harness.awaited = 2
    harness.source.unavailable = True
    assert harness.batch([delivery(path) for path in ("/a", "/slow", "/b")]) == [Done()] * 3


@pytest.mark.parametrize("asked", [1, 31, 10**6])
def test_a_failed_try_is_reported_to_its_job(harness: Harness, asked: int) -> None:
    harness.scraper.fetcher.pages[f"{SITE}/busy"] = status_failure(429, asked)
    harness.batch([delivery("/busy", tries=2), delivery("/busy", tries=2, job_id=None)])
    assert harness.reports() == [("m/busy:retrying:2", "retrying")]
    retrying = read(StageResult, harness.queue.bodies[0]).retrying
    assert retrying is not None
    waits = (retrying.next_retry_at - harness.scraper.clock.now()).total_seconds()
    assert (retrying.tries, retrying.cause) == (2, "http_429")
    assert retrying.retry_in_s == pytest.approx(waits)
    assert retrying.failure is not None
    assert retrying.failure.message == "Domain returned 429 — too many requests"


@pytest.mark.parametrize(("wait_s", "reported"), [(30.0, False), (31.0, True)])
def test_the_turn_of_a_site_is_reported_when_it_takes_long(
    harness: Harness, wait_s: float, reported: bool
) -> None:
    harness.scraper.fetcher.pages[f"{SITE}/busy"] = DomainBusy("domain_busy", "busy", SITE, wait_s)
    harness.batch([delivery("/busy")])
    assert harness.reports() == ([("m/busy:retrying:1", "retrying")] if reported else [])
    if reported:
        retrying = read(StageResult, harness.queue.bodies[0]).retrying
        assert retrying is not None
        assert retrying.failure is None


def test_the_wait_for_a_failing_site_tells_its_last_failure(harness: Harness) -> None:
    busy = DomainBusy("domain_failing", "It is left alone", SITE, 60.0, "tls_error")
    harness.scraper.fetcher.pages[f"{SITE}/busy"] = busy
    harness.batch([delivery("/busy")])
    retrying = read(StageResult, harness.queue.bodies[0]).retrying
    assert retrying is not None
    assert retrying.failure == StageFailure(code="tls_error", message="It is left alone")


@pytest.mark.parametrize(("receives", "tries", "reported"), [(1, 1, True), (3, 3, True), (2, 1, False)])
def test_an_outage_is_reported_when_a_message_meets_it_first(
    harness: Harness, receives: int, tries: int, reported: bool
) -> None:
    reporter = BatchReporter(
        WorkerStage(BY_NAME["embedding"], ""),
        [replace(delivery("/a", tries=tries), receive_count=receives)],
        harness.queue,
        harness.scraper.clock,
    )
    reporter.error(0, BreakerOpen(ErrorCode.EMBEDDING_UNAVAILABLE, 20.0))
    reporter.finish()
    assert harness.reports() == ([(f"m/a:retrying:{receives}", "retrying")] if reported else [])


def test_an_event_that_was_not_taken_changes_no_wait(harness: Harness) -> None:
    harness.queue.unavailable = True
    harness.scraper.fetcher.pages[f"{SITE}/busy"] = status_failure(429, 100)
    assert harness.batch([delivery("/busy")]) == [Retry(100, "http_429")]


@pytest.mark.fault("F8")
def test_a_page_that_could_not_be_finished_is_not_begun(harness: Harness) -> None:
    harness.batch([delivery("/a")])
    before = len(harness.scraper.fetcher.requested)
    assert harness.batch([delivery("/b", deadline=1001.9)]) == [Wait(1.0, "deadline")]
    assert len(harness.scraper.fetcher.requested) == before


def test_time_for_another_is_known_from_the_longest_and_never_more_than_half() -> None:
    times = RecordTimes(2.0)
    times.begin(30.0)
    assert (times.suffices(2.0), times.suffices(1.9)) == (True, False)
    times.add(9.0)
    assert (times.suffices(9.0), times.suffices(8.9)) == (True, False)
    times.add(29.0)
    assert (times.suffices(15.0), times.suffices(14.9)) == (True, False)
    for _ in range(100):
        times.add(0.1)
    assert times.suffices(2.0)
