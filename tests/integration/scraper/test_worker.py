"""The worker against a real site."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Retry
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_batch
from indexmill.scraper.worker import ScrapeBatch
from tests.integration.scraper.site import Site, answer, redirect, running_site
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue
from tests.unit.scraper.pdf_file import pdf

PAGE = "<!doctype html><html lang=en><title>T</title><nav>Menu</nav><main><h1>H</h1><p>Words.</p></main>"


class Harness:
    """The worker as it is wired, with the site allowed."""

    def __init__(self, *sites: Site) -> None:
        self.queue, self.blobs = InMemoryQueue(), InMemoryBlobs()
        self.batch: ScrapeBatch = build_batch(
            ScraperWorkerSettings(
                scrape_queue_url="x",
                scrape_dlq_url="x",
                callbacks_queue_url="x",
                bucket_name="x",
                state_table="x",
                allowed_private_hosts=",".join(f"127.0.0.1:{site.port}" for site in sites),
                domain_rates="*=unlimited",
                max_content_bytes=1_000_000,
                read_timeout_s=0.3,
            ),
            queue=self.queue,
            source=InMemoryQueue(),
            blobs=self.blobs,
            robots_cache=InMemoryRobotsCache(),
        )

    def scrape(self, *urls: str, tries: int = 1) -> list[Outcome]:
        deadline = time.monotonic() + 20
        tasks = [ScrapeTask(message_id=url, job_id="job", url=url) for url in urls]
        return list(self.batch([Delivery(task, tries, deadline, tries=tries) for task in tasks]))

    def code(self, url: str, tries: int = 1) -> str | None:
        """Return the error code of the job of `url`; the reason for a retry otherwise."""
        self.queue.bodies.clear()
        (outcome,) = self.scrape(url, tries=tries)
        if isinstance(outcome, Retry):
            return f"retry {outcome.reason}"
        failed = self.results[0].failure
        return failed.code if failed is not None else None

    @property
    def results(self) -> list[StageResult]:
        return [read(StageResult, body) for body in self.queue.bodies]


@pytest.fixture
def other() -> Iterator[Site]:
    """Another site that the worker may visit."""
    with running_site() as running:
        yield running


@pytest.fixture
def harness(site: Site, other: Site) -> Iterator[Harness]:
    made = Harness(site, other)
    yield made
    made.batch.close()


def test_a_batch_of_every_kind_of_page(site: Site, harness: Harness) -> None:
    site.route("/moved", redirect("/html"))
    urls = [
        site.page("/html", PAGE),
        site.url + "/moved",
        site.page("/packed", gzip.compress(PAGE.encode()), content_encoding="gzip"),
        site.page("/doc.md", "# H\n\nWords.", "text/markdown"),
        site.page("/text", "Words.\nMore.", "text/plain"),
        site.page("/pdf", pdf("Words."), "application/pdf"),
        site.page("/latin", "<p>Grüße".encode("latin-1"), "text/html; charset=iso-8859-1"),
        site.page("/liar", "<p>日本".encode(), "text/html; charset=us-ascii"),
    ]
    assert harness.scrape(*urls) == [Done()] * len(urls)
    # Pages that are ready early are reported before the others.
    found = {result.message_id: result.document for result in harness.results}
    documents = [found[f"{url}:result"] for url in urls]
    texts = [document.text if document else None for document in documents]
    head = "# H\n\nWords."
    assert texts == [head, head, head, head, "Words.\nMore.", "Words.", "Grüße", "日本"]
    assert documents[1] is not None
    assert (documents[1].url, documents[1].final_url) == (site.url + "/moved", site.url + "/html")
    assert site.paths.count("/robots.txt") == 1


@pytest.mark.shows("S32")
def test_no_page_leaves_a_file(
    site: Site, harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    urls = [
        site.page("/html", PAGE),
        site.page("/pdf", pdf("Words."), "application/pdf"),
        site.page("/broken", "%PDF-1.4 broken", "application/pdf"),
        site.page("/dense", "<p>" * 200_000 + "Words."),
        site.page("/bomb", gzip.compress(bytes(9_000_000)), content_encoding="gzip"),
    ]
    assert harness.scrape(*urls) == [Done()] * len(urls)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.fault("F55")
@pytest.mark.shows("R262")
def test_failures_carry_their_codes(site: Site, harness: Harness, canary: Site) -> None:
    expected = {
        site.page("/zip", b"PK\x03\x04", "application/zip"): "unsupported_content_type",
        site.page("/png", b"\x89PNG\r\n", "text/html"): "unsupported_content_type",
        site.page("/exe", b"MZ\x90\0", "application/octet-stream"): "unsupported_content_type",
        site.page("/untyped", b"words", ""): "unsupported_content_type",
        site.page("/lie", "not a pdf", "application/pdf"): "parse_error",
        site.page("/broken", "%PDF-1.4 broken", "application/pdf"): "parse_error",
        site.page("/empty", ""): "empty_content",
        site.page("/blank", "<p> &nbsp; \n</p>"): "empty_content",
        site.page("/app", "<div id=root></div><script>render()</script>"): "needs_javascript",
        site.page("/huge", "x" * 1_000_001): "content_too_large",
        site.page("/bomb", gzip.compress(bytes(9_000_000)), content_encoding="gzip"): "content_bomb",
        site.route("/loop", redirect("/loop")): "too_many_redirects",
        site.route("/inside", redirect(canary.url)): "url_host_not_allowed",
        site.url + "/missing": "http_404",
        site.route("/busy", answer("", status="503 X")): "retry http_503",
        canary.url + "/": "url_host_not_allowed",
    }
    assert {url: harness.code(url) for url in expected} == expected
    assert canary.connections == 0


def test_html_that_calls_itself_a_pdf_is_read_as_html(site: Site, harness: Harness) -> None:
    assert harness.code(site.page("/x", PAGE, "application/pdf")) is None


def test_deep_nesting_keeps_its_words(site: Site, harness: Harness) -> None:
    assert harness.code(site.page("/deep", "<div>" * 3_000 + "deep words")) is None
    document = harness.results[0].document
    assert document is not None
    assert document.text == "deep words"


def test_a_refused_connection_is_tried_again_and_ends_the_job(site: Site, harness: Harness) -> None:
    async def abort(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    url = site.route("/reset", abort)
    assert harness.code(url) == "retry connection_error"
    assert harness.code(url, tries=4) == "max_retries_exceeded"
    failed = harness.results[0].failure
    assert failed is not None
    assert (failed.cause, failed.message) == ("connection_error", "Scraping failed after 3 retries")


@pytest.mark.shows("R017")
def test_robots_are_read_before_every_page(site: Site, harness: Harness) -> None:
    site.page("/robots.txt", "User-agent: IndexmillBot\nDisallow: /private", "text/plain")
    assert harness.code(site.page("/private/x", PAGE)) == "robots_disallowed"
    assert harness.code(site.page("/public", PAGE)) is None
    assert site.paths == ["/robots.txt", "/public"]


@pytest.mark.fault("F56")
def test_a_redirect_does_not_go_around_robots(site: Site, other: Site, harness: Harness) -> None:
    other.page("/robots.txt", "User-agent: *\nDisallow: /private", "text/plain")
    other.page("/private/x", PAGE)
    other.page("/open", PAGE)
    site.route("/refused", redirect(other.url + "/private/x"))
    site.route("/relayed", redirect("/refused"))
    site.route("/fine", redirect(other.url + "/open"))
    codes = [harness.code(site.url + path) for path in ("/refused", "/relayed", "/fine")]
    assert codes == ["robots_disallowed", "robots_disallowed", None]
    assert other.paths == ["/robots.txt", "/open"]


def test_a_page_that_asks_not_to_be_indexed_is_refused(site: Site, harness: Harness) -> None:
    meta = "<!doctype html><meta name=robots content=noindex><p>Words."
    assert harness.code(site.page("/meta", meta)) == "robots_noindex"
    assert harness.code(site.page("/tag", PAGE, x_robots_tag="IndexmillBot: noindex")) == "robots_noindex"
    (failed,) = [result.failure for result in harness.results]
    assert failed is not None
    assert failed.message.endswith('(X-Robots-Tag: "IndexmillBot: noindex")')
    assert harness.code(site.page("/other", PAGE, x_robots_tag="OtherBot: noindex")) is None
    assert len(harness.blobs.objects) == 1


@pytest.mark.fault("F56")
def test_rules_belong_to_the_site_that_was_asked(site: Site, other: Site, harness: Harness) -> None:
    site.route("/robots.txt", redirect(other.url + "/1"))
    for at in range(1, 5):
        other.route(f"/{at}", redirect(f"/{at + 1}"))
    other.page("/5", "User-agent: *\nDisallow: /a", "text/plain")
    assert harness.code(site.page("/a", PAGE)) == "robots_disallowed"
    assert harness.code(other.page("/a", PAGE)) is None
    assert harness.code(site.page("/b", PAGE)) is None


@pytest.mark.fault("F56")
def test_six_redirects_of_robots_state_no_rules(site: Site, harness: Harness) -> None:
    for at in range(6):
        site.route("/robots.txt" if at == 0 else f"/{at}", redirect(f"/{at + 1}"))
    site.page("/6", "User-agent: *\nDisallow: /", "text/plain")
    assert harness.code(site.page("/a", PAGE)) is None
    assert "/6" not in site.paths


@pytest.mark.fault("F56")
@pytest.mark.parametrize(
    "robots",
    [
        answer("User-agent: *\nAllow: /", "text/plain", content_encoding="br"),
        answer(gzip.compress(b"User-agent: *\nAllow: /")[:-9], "text/plain", content_encoding="gzip"),
        answer("no gzip", "text/plain", content_encoding="gzip"),
        redirect("file:///etc/passwd"),
    ],
)
def test_robots_that_cannot_be_decoded_are_waited_for(site: Site, harness: Harness, robots: bytes) -> None:
    site.route("/robots.txt", robots)
    assert harness.code(site.page("/x", PAGE)) == "retry robots_unavailable"
    assert "/x" not in site.paths


@pytest.mark.fault("F56")
@pytest.mark.shows("B62")
@pytest.mark.parametrize(
    "body", ["<!doctype html><html><p>Disallow: nothing", b"\0\1\2\xff" * 1000, "", b"\xff\xfe"]
)
def test_robots_without_rules_allow(site: Site, harness: Harness, body: bytes | str) -> None:
    site.page("/robots.txt", body)
    assert harness.code(site.page("/x", PAGE)) is None


@pytest.mark.shows("B62")
def test_robots_that_redirect_inside_are_not_followed(site: Site, harness: Harness, canary: Site) -> None:
    site.route("/robots.txt", redirect(canary.url))
    assert harness.code(site.page("/x", PAGE)) == "url_host_not_allowed"
    assert canary.connections == 0


@pytest.mark.parametrize("status", ["500 X", "503 X", "429 X"])
def test_robots_that_are_unavailable_are_waited_for(site: Site, harness: Harness, status: str) -> None:
    site.route("/robots.txt", answer("", status=status))
    assert harness.code(site.page("/x", PAGE)) == "retry robots_unavailable"
    assert site.paths == ["/robots.txt"]


def test_robots_that_never_come_are_waited_for(site: Site, harness: Harness) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    site.route("/robots.txt", silent)
    assert harness.code(site.page("/x", PAGE)) == "retry robots_unavailable"


@pytest.mark.shows("B62")
def test_endless_robots_are_cut(site: Site, harness: Harness) -> None:
    site.page("/robots.txt", "User-agent: *\nDisallow: /a\n" + "#" * 3_000_000, "text/plain")
    assert harness.code(site.page("/a", PAGE)) == "robots_disallowed"
    assert harness.code(site.page("/b", PAGE)) is None
