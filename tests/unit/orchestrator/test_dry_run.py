"""Dry runs: facts of pages, and the price of their jobs."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexmill.contracts.cost import Prices, Spent
from indexmill.contracts.errors import CallerError, IndexmillError
from indexmill.contracts.http_scraper import ScrapeResult
from indexmill.contracts.identity import CallerContext, Doubt
from indexmill.contracts.job import SubmitRequest
from indexmill.orchestrator.adapters.aws import LambdaScraper
from indexmill.orchestrator.store.crawls import Crawl, CrawlPage
from indexmill.orchestrator.store.queries import JobFilter, StageTotals
from indexmill.orchestrator.submission.dry_run import TryOut, estimated_chunks
from tests.support.jobs import CALLER
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs

URL = "https://example.com/a"


def scraped(url: str, text: str) -> ScrapeResult:
    return ScrapeResult(
        url=url,
        final_url=url,
        title="A",
        markdown=text,
        content_type="text/html",
        language=None,
        content_sha256="0" * 64,
        size=len(text),
        elapsed_ms=1,
    )


@dataclass
class FakeScraper:
    """Answers with a text, or with the error of a URL."""

    text: str = "words " * 500
    error: IndexmillError | None = None
    accepted: list[Sequence[Doubt] | None] = field(default_factory=list)

    def scrape(
        self, ctx: CallerContext, url: str, request_id: str, accept: Sequence[Doubt] | None = None
    ) -> ScrapeResult:
        self.accepted.append(accept)
        if self.error is not None:
            raise self.error
        return scraped(url, self.text)


class Receipts(InMemoryJobs):
    """Jobs whose receipts are known."""

    spent = Spent()

    def receipt(self, wanted: JobFilter, most: int) -> list[StageTotals]:
        return [StageTotals(None, 1, 0, 1, 1, self.spent)]

    def pages_to_come(self, caller_id: str) -> int:
        return 0

    def add_crawl(self, crawl: Crawl, first: CrawlPage) -> None:
        """Keep nothing: a dry run undoes it."""


def run(scraper: FakeScraper, store: Receipts | None = None, **request: Any) -> Any:
    body = SubmitRequest.model_validate({"dry_run": True, **request})
    submit = OrchestratorHarness(store or Receipts(FrozenClock())).submit_jobs
    return TryOut(submit, scraper, Prices())(CALLER, body, "r")


@pytest.mark.shows("X16")
def test_a_page_is_described_and_no_job_is_made() -> None:
    store = Receipts(FrozenClock())
    found = run(FakeScraper(), store, url=URL)
    (page,) = found.pages
    assert (page.allowed, page.error, page.size, page.content_type) == (True, None, 3_000, "text/html")
    assert page.chunks == found.chunks == estimated_chunks("words " * 500) == 4
    assert page.usd == found.usd > 0
    assert (found.jobs, found.pending) == (1, 0)
    assert store.jobs == store.outbox == store.job_history == {}


def test_its_pages_are_read_despite_the_doubts_that_it_accepts() -> None:
    scraper = FakeScraper()
    run(scraper, url=URL, accept=["soft_404"])
    assert scraper.accepted == [["soft_404"]]


OPEN = """connection_error connection_refused connection_timeout deadline_exceeded dns_error domain_busy
    domain_failing robots_unavailable tls_error url_host_not_allowed upstream_error rate_limited
    internal_error maintenance storage_unavailable"""
READ = """content_bomb content_too_large empty_content http_403 http_404 http_503 login_required
    needs_javascript other_host parse_error read_timeout render_limit_exceeded renderer_unavailable
    response_too_large soft_404 too_many_redirects unsupported_content_type unsupported_encoding"""


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        *((code, False) for code in ("robots_disallowed", "robots_noindex")),
        *((code, None) for code in OPEN.split()),
        *((code, True) for code in READ.split()),
    ],
)
def test_an_error_has_what_is_known_of_the_robots_txt(code: str, allowed: bool | None) -> None:
    (page,) = run(FakeScraper(error=IndexmillError(code, "No.")), url=URL).pages
    assert (page.error.code, page.allowed) == (code, allowed)


def test_a_refusal_has_its_rule() -> None:
    error = IndexmillError("robots_disallowed", 'Not allowed: "Disallow: /a"')
    found = run(FakeScraper(error=error), urls=[URL, URL])
    assert [(page.allowed, page.error.code) for page in found.pages] == [(False, "robots_disallowed")] * 2
    assert "Disallow: /a" in found.pages[0].error.message
    assert (found.chunks, found.usd) == (0, 0)


def test_the_price_is_that_of_the_callers_own_jobs() -> None:
    store = Receipts(FrozenClock())
    store.spent = Spent(chunks=100, s3_writes=100)
    found = run(FakeScraper(), store, url=URL)
    assert found.usd == pytest.approx(4 * 5e-6)


def test_a_crawl_is_estimated_by_its_first_page() -> None:
    one = run(FakeScraper(), url=URL)
    crawl = run(FakeScraper(), url=URL, kind="crawl", crawl={"max_pages": 50})
    assert (crawl.jobs, len(crawl.pages)) == (50, 1)
    assert crawl.usd == pytest.approx(50 * one.usd)


def test_a_dry_run_is_for_few_urls() -> None:
    with pytest.raises(CallerError) as refused:
        run(FakeScraper(), urls=[f"{URL}{at}" for at in range(6)])
    assert refused.value.field == "body.dry_run"


class FakeLambda:
    """Keeps the event and answers as the Scraper's API does."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.reply = {"statusCode": status, "body": json.dumps(body)}
        self.events: list[dict[str, Any]] = []

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - boto3's names
        self.events.append(json.loads(Payload))
        return {"Payload": io.BytesIO(json.dumps(self.reply).encode())}


def test_the_scraper_is_asked_for_the_caller() -> None:
    function = FakeLambda(200, scraped(URL, "text").model_dump(mode="json"))
    caller = CallerContext("me", tier="pro", raw_claims={"rate_limits": {"a": 1}})
    assert LambdaScraper("f", function).scrape(caller, URL, "r-1").markdown == "text"
    LambdaScraper("f", function).scrape(caller, URL, "r-1", ["soft_404"])
    event, other = function.events
    assert json.loads(other["body"]) == {"url": URL, "accept": ["soft_404"]}
    assert event["requestContext"]["authorizer"]["caller_id"] == "me"
    assert json.loads(event["requestContext"]["authorizer"]["rate_limits"]) == {"a": 1}
    assert (event["path"], json.loads(event["body"])) == ("/scraper/scrape", {"url": URL})


def test_an_error_of_the_scraper_keeps_its_code() -> None:
    body = {"error": {"code": "robots_disallowed", "message": "No."}}
    with pytest.raises(IndexmillError) as refused:
        LambdaScraper("f", FakeLambda(422, body)).scrape(CALLER, URL, "r")
    assert (refused.value.code, refused.value.message) == ("robots_disallowed", "No.")
    with pytest.raises(IndexmillError) as broken:
        LambdaScraper("f", FakeLambda(200, {})).scrape(CALLER, URL, "r")
    assert broken.value.code == "upstream_error"
