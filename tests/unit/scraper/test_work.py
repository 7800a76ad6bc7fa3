"""Outcome of each delivery to the worker, and the job that gets the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, TransientError, failure
from indexmill.contracts.messages import StageFailure, StageResult, Stored, read
from indexmill.platform.consumer.deliveries import Done, Retry, Wait
from indexmill.scraper.adapters.answer import status_failure
from indexmill.scraper.ports import Fetched, NameNotFound
from indexmill.scraper.worker import ScrapeBatch
from tests.support.scraper import SITE, ScraperHarness, delivery
from tests.twins.queues import InMemoryQueue

PAGE = "<main><p>Words.</p></main>"


class Harness:
    """A worker with everything around it."""

    def __init__(self) -> None:
        self.scraper = ScraperHarness()
        self.queue = InMemoryQueue()
        self.scraper.fetcher.pages[f"{SITE}/ok"] = PAGE
        self.source = InMemoryQueue()
        self.batch = ScrapeBatch(self.scraper.parts(), self.queue, self.source)

    def fail(self, error: Exception) -> None:
        self.scraper.fetcher.pages[f"{SITE}/bad"] = error

    @property
    def results(self) -> list[StageResult]:
        return [read(StageResult, body) for body in self.queue.bodies]

    @property
    def only_failure(self) -> StageFailure:
        (result,) = self.results
        assert result.status == "failed"
        assert result.failure is not None
        return result.failure


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    yield made
    made.batch.close()


@pytest.mark.shows("R017", "R020", "R023")
def test_a_page_is_reported_to_its_job(harness: Harness) -> None:
    assert harness.batch([delivery("/ok", tries=2)]) == [Done()]
    result = harness.results[0]
    assert (result.message_id, result.job_id) == ("m/ok:result", "job")
    assert (result.attempt, result.request_id, result.tries) == (3, "r", 2)
    assert (result.stage, result.status, result.failure) == ("scraping", "success", None)
    assert result.document is not None
    assert result.document.text == "Words."


def test_the_message_names_its_schema(harness: Harness) -> None:
    harness.batch([delivery("/ok")])
    assert '"schema":"indexmill.result.v1"' in harness.queue.bodies[0]


@pytest.mark.shows("R020")
def test_without_a_job_no_result_is_sent(harness: Harness) -> None:
    harness.fail(status_failure(404))
    assert harness.batch([delivery("/ok", job_id=None), delivery("/bad", job_id=None)]) == [Done(), Done()]
    assert harness.queue.bodies == []


@pytest.mark.shows("R064")
@pytest.mark.parametrize("tries", [1, 4])
def test_a_permanent_failure_is_reported_at_once(harness: Harness, tries: int) -> None:
    harness.fail(status_failure(403))
    assert harness.batch([delivery("/bad", tries=tries)]) == [Done()]
    failed = harness.only_failure
    assert (failed.code, failed.cause, failed.tries) == ("http_403", None, tries)
    assert failed.message == "Domain returned 403 — likely blocked or robots.txt restricted"


@pytest.mark.shows("R059", "R064")
@pytest.mark.parametrize("tries", [1, 2, 3])
def test_a_transient_failure_is_tried_again(harness: Harness, tries: int) -> None:
    harness.fail(failure(ErrorCode.READ_TIMEOUT))
    (outcome,) = harness.batch([delivery("/bad", tries=tries)])
    assert isinstance(outcome, Retry)
    assert outcome.reason == "read_timeout"
    assert 0 <= outcome.after_s <= 2 ** (tries - 1)
    (report,) = harness.results
    assert report.status == "retrying"
    assert report.retrying is not None
    assert (report.retrying.tries, report.retrying.failure) == (
        tries,
        StageFailure(code="read_timeout", message="The site stopped sending"),
    )


@pytest.mark.shows("R060")
def test_the_last_try_ends_the_job_with_its_cause(harness: Harness) -> None:
    harness.fail(status_failure(503))
    assert harness.batch([delivery("/bad", tries=4)]) == [Done()]
    failed = harness.only_failure
    assert (failed.code, failed.cause, failed.tries) == ("max_retries_exceeded", "http_503", 4)
    assert failed.message == "Scraping failed after 3 retries"


@pytest.mark.parametrize(("asked", "waited"), [(90, 90), (4000, 4000), (10**6, 42_300)])
def test_a_site_that_asks_for_a_pause_gets_it(harness: Harness, asked: int, waited: int) -> None:
    harness.fail(status_failure(429, asked))
    assert harness.batch([delivery("/bad")]) == [Retry(waited, "http_429")]


def test_a_page_that_breaks_us_leaves_its_neighbours_alone(harness: Harness) -> None:
    harness.fail(RuntimeError("surprise"))
    first, second, third = harness.batch([delivery("/ok"), delivery("/bad"), delivery("/bad", tries=4)])
    assert first == third == Done()
    assert isinstance(second, Retry)
    assert second.reason == "internal_error"
    ok, again, failed = harness.results
    assert ok.status == "success"
    assert again.retrying is not None
    for told in (again.retrying.failure, failed.failure):
        assert told is not None
        assert (told.code, told.message) == ("internal_error", "Scraping failed unexpectedly")


def test_a_message_that_killed_the_worker_is_not_tried_again(harness: Harness) -> None:
    assert harness.batch([delivery("/ok", tries=2, crashes=3, last_error="http_503")]) == [Done()]
    failed = harness.only_failure
    assert (failed.code, failed.cause, failed.tries) == ("poison_message", "worker_crashed", 4)
    assert failed.message.endswith("(last error: http_503)")
    assert harness.scraper.fetcher.requested == []


def test_results_that_cannot_be_sent_keep_their_messages(harness: Harness) -> None:
    harness.queue.unavailable = True
    outcomes = harness.batch([delivery("/ok"), delivery("/ok", job_id=None)])
    assert outcomes == [Wait(1.0, "queue_unavailable"), Done()]


@pytest.mark.fault("F25")
def test_a_refused_result_keeps_only_its_own_message(harness: Harness) -> None:
    harness.queue.refuse = {2}
    harness.fail(failure(ErrorCode.READ_TIMEOUT))
    deliveries = [
        delivery("/bad"),
        delivery("/ok"),
        delivery("/ok", job_id=None),
        delivery("/ok"),
        delivery("/ok"),
    ]
    outcomes = harness.batch(deliveries)
    assert isinstance(outcomes[0], Retry)
    assert list(outcomes[1:]) == [Done(), Done(), Wait(1.0, "queue_unavailable"), Done()]
    assert [result.status for result in harness.results] == ["retrying", "success", "success"]


@pytest.mark.parametrize("known", ["", "published", "known"])
def test_a_name_that_does_not_exist_is_the_end_of_a_page_that_was_never_published(
    harness: Harness, known: str
) -> None:
    harness.fail(NameNotFound())
    message = delivery("/bad")
    kept = Stored(ref=BlobRef(key="raw/k", sha256="0" * 64, size=1), content_type="a/b", final_url=SITE)
    said: dict[str, Any] = {"": {}, "published": {"published": True}, "known": {"known": kept}}[known]
    message = replace(message, message=message.message.model_copy(update=said))
    (outcome,) = harness.batch([message])
    (result,) = harness.results
    if known:
        assert isinstance(outcome, Retry)
        assert result.retrying is not None
        assert result.retrying.cause == "dns_error"
    else:
        assert outcome == Done()
        assert harness.only_failure.code == "dns_error"


def test_unavailable_storage_is_waited_for(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object, **__: object) -> None:
        raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "away")

    monkeypatch.setattr(harness.scraper.blobs, "put", unavailable)
    (outcome,) = harness.batch([delivery("/ok")])
    assert isinstance(outcome, Retry)
    assert outcome.reason == "storage_unavailable"


def test_a_url_that_is_not_ours_to_fetch_fails_its_job(harness: Harness) -> None:
    assert harness.batch([delivery("/x", url="http://10.0.0.1/")]) == [Done()]
    assert harness.only_failure.code == "url_host_not_allowed"


def test_an_empty_batch_is_no_work(harness: Harness) -> None:
    assert harness.batch([]) == []


def test_a_worker_works_batch_after_batch(harness: Harness) -> None:
    for _ in range(3):
        assert harness.batch([delivery("/ok")] * 10) == [Done()] * 10
    assert harness.scraper.fetcher.requested.count(f"{SITE}/robots.txt") == 1


@pytest.mark.parametrize(("given", "used"), [(5000.0, 1030.0), (1010.0, 1010.0)])
def test_a_page_gets_the_shorter_of_both_deadlines(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, given: float, used: float
) -> None:
    seen: list[float] = []

    async def fetch(url: str, *, deadline: float, **_: object) -> Fetched:
        seen.append(deadline)
        return Fetched(url, 200, "text/plain", None, b"x")

    monkeypatch.setattr(harness.scraper.fetcher, "fetch", fetch)
    harness.batch([delivery("/a", deadline=given)])
    assert set(seen) == {used}
