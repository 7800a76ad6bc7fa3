"""Risky pages are read one at a time, and who waits for the others loses no try by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, failure
from indexmill.platform.consumer.deliveries import Done, Outcome, Retry, Wait
from indexmill.scraper.extract.content import Extracted, RawContent
from indexmill.scraper.ports import Fetched
from indexmill.scraper.scrape import ScrapeParts
from indexmill.scraper.worker import ScrapeBatch
from tests.support.scraper import SITE, ScraperHarness, delivery
from tests.twins.queues import InMemoryQueue

WAIT_S = 10.0
UNTRIED = Wait(1.0, "deadline")
Read = Callable[[str], Extracted]


class Isolation:
    """Reads a page by `read`, which gets its path; knows how many were read at once."""

    def __init__(self) -> None:
        self.read: Read = lambda path: Extracted(path, None)
        self.now = self.most = 0

    def extract(self, content: RawContent, *, timeout_s: float) -> Extracted:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return self.read(content.body.decode().split()[1])
        finally:
            self.now -= 1


class Pages:
    """A worker and its PDFs."""

    def __init__(self) -> None:
        self.isolation, self.scraper = Isolation(), ScraperHarness()
        self.parts: ScrapeParts = replace(self.scraper.parts(), isolation=self.isolation)
        self.batches: list[ScrapeBatch] = []

    def work(self, *paths: str, timeout_s: float = WAIT_S) -> list[Outcome]:
        for path in paths:
            body = f"%PDF-1.4 {path} ".encode()
            self.scraper.fetcher.pages[SITE + path] = Fetched(SITE + path, 200, "application/pdf", None, body)
        parts = replace(self.parts)
        self.batches.append(ScrapeBatch(parts, InMemoryQueue(), InMemoryQueue(), timeout_s=timeout_s))
        return list(self.batches[-1]([delivery(path) for path in paths]))


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    for batch in made.batches:
        batch.close()


@pytest.mark.fault("F68")
def test_they_are_read_one_at_a_time(pages: Pages) -> None:
    def slow(path: str) -> Extracted:
        threading.Event().wait(0.02)
        return Extracted(path, None)

    pages.isolation.read = slow
    assert pages.work("/a", "/b", "/c") == [Done()] * 3
    assert pages.isolation.most == 1


def test_the_next_is_read_while_the_content_of_one_is_stored(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, put = threading.Event(), pages.scraper.blobs.put

    def read(path: str) -> Extracted:
        if path == "/b":
            second.set()
        return Extracted(path, None)

    def slow_put(data: bytes, *, kind: str, content_type: str) -> BlobRef:
        assert second.wait(WAIT_S)
        return put(data, kind=kind, content_type=content_type)

    pages.isolation.read = read
    monkeypatch.setattr(pages.scraper.blobs, "put", slow_put)
    assert pages.work("/a", "/b", timeout_s=WAIT_S / 2) == [Done()] * 2


def test_one_that_waited_until_its_deadline_goes_back_without_a_try(pages: Pages) -> None:
    def slow(path: str) -> Extracted:
        threading.Event().wait(0.5)
        return Extracted(path, None)

    pages.isolation.read = slow
    assert pages.work("/a", "/b", timeout_s=0.2) == [Done(), UNTRIED]


def test_one_that_waited_and_had_too_little_time_left_goes_back_without_a_try(pages: Pages) -> None:
    def read(path: str) -> Extracted:
        raise failure(ErrorCode.DEADLINE_EXCEEDED)

    pages.isolation.read = read
    assert isinstance(pages.work("/alone")[0], Retry)
    first, second = pages.work("/a", "/b")
    assert isinstance(first, Retry)
    assert second == UNTRIED
