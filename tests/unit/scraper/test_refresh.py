"""Pages that refresh to another one: followed like redirects when there is no time to read them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from indexmill.contracts.errors import IndexmillError
from indexmill.contracts.messages import ScrapeResult, Stored, read
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.consumer.deliveries import Wait
from indexmill.platform.security.urls import DomainRates
from indexmill.scraper.ports import Fetched
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.revisit import StoredPage
from indexmill.scraper.scrape import execute_scrape
from indexmill.scraper.worker import ScrapeBatch
from tests.support.scraper import SITE, ScraperHarness, delivery
from tests.twins.fetcher import InMemoryFetcher
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryHosts

OTHER = "https://other.example"
TARGET = "<main><p>What the page moved to.</p></main>"
MOVED = "<p>Moved.</p>"
LONG = f"<main><p>{'A text that is there to be read. ' * 20}</p></main>"


def page(value: str, body: str = MOVED, *, head: str = "") -> str:
    return f'<html><head>{head}<meta http-equiv="refresh" content="{value}"></head><body>{body}</body></html>'


def scraped(pages: dict[str, object], url: str = f"{SITE}/old", **fields: object) -> tuple[str, list[str]]:
    """Return the URL of what was read, or the code, and the URLs that were asked."""
    fetcher = InMemoryFetcher({f"{SITE}/new": TARGET, f"{SITE}/in/new": TARGET, **pages})  # type: ignore[arg-type]
    parts = ScraperHarness(fetcher).parts()
    fetch = parts.rates.page(1060.0, **fields)  # type: ignore[arg-type]
    try:
        document = asyncio.run(execute_scrape(url, None, parts=parts, fetch=fetch))
    except IndexmillError as error:
        return error.code, fetcher.requested
    assert document.url == url
    return document.final_url, fetcher.requested


@pytest.mark.parametrize(
    "html",
    [
        page("0;url=/new"),
        page("0; URL='/new'"),
        page(" 0 , url = &quot;/new&quot; and more"),
        page("0 /new"),
        page("0.5;/new"),
        page(".9; url=new"),
        page(f"0;url={SITE}/new#part"),
        page("0;url=/new", LONG),
        page("1;url=/new"),
        page("2;url=/new"),
        page("0;url=new", head=f'<base href="{SITE}/">'),
        page("0;url=/new", head='<meta http-equiv=refresh content="30"><meta name=robots content=noindex>'),
        page("0;url=/new").replace('"refresh"', "Refresh").replace("meta", "META"),
        '<title>Moved</title><META HTTP-EQUIV="REFRESH" CONTENT="0;URL=/new">',
        page("0;url=/new").replace('"refresh"', '"ReFresh"'),
        page("2;url=/new", f"<nav>{'Menu ' * 99}</nav>{MOVED}"),
    ],
)
def test_a_page_that_is_a_redirect_is_followed(html: str) -> None:
    assert scraped({f"{SITE}/old": html})[0] == f"{SITE}/new"


@pytest.mark.parametrize(
    "html",
    [
        page("3;url=/new"),
        page("2;url=/new", LONG),
        page("2;url=/new", f"<div><template shadowrootmode=open>{LONG}</template></div>"),
        page("0"),
        page("5; url="),
        page("0;url=/old"),
        page("0;url=#part"),
        page("-1;url=/new"),
        page("now;url=/new"),
        page("0url=/new"),
        page("0;url=javascript:go()"),
        page("0;url=data:text/html,x"),
        page("0;url=http://[x/"),
        f"<head><noscript>{page('0;url=/new')}</noscript></head>{MOVED}",
        f"<head></head><body>{MOVED}<meta http-equiv=refresh content='0;url=/new'></body>",
        f"<head><!-- <meta http-equiv=refresh content='0;url=/new'> --></head>{MOVED}",
        f"<head><script>'<meta http-equiv=refresh content=\"0;url=/new\">'</script></head>{MOVED}",
        f"<head><template><meta http-equiv=refresh content='0;url=/new'></template></head>{MOVED}",
        f"<p>Write &lt;meta http-equiv=refresh content='0;url=/new'&gt;</p>{LONG}",
    ],
)
def test_a_page_that_can_be_read_is_read(html: str) -> None:
    assert scraped({f"{SITE}/old": html}) == (f"{SITE}/old", [f"{SITE}/robots.txt", f"{SITE}/old"])


@pytest.mark.parametrize(
    ("header", "body", "read"),
    [
        ("0;url=/new", LONG, "/new"),
        ("2;url=/new", MOVED, "/new"),
        ("2;url=/new", LONG, "/old"),
        ("10", page("0;url=/new"), "/new"),
        ("0;url=/new", "", "/new"),
    ],
)
def test_a_header_counts_as_the_element_does(header: str, body: str, read: str) -> None:
    answer = Fetched(f"{SITE}/old", 200, "text/html", "utf-8", body.encode(), refresh=header)
    assert scraped({f"{SITE}/old": answer})[0] == f"{SITE}{read}"


def test_text_that_is_no_web_page_is_read_as_it_is() -> None:
    answer = Fetched(f"{SITE}/old", 200, "text/plain", "utf-8", page("0;url=/new").encode())
    assert scraped({f"{SITE}/old": answer})[0] == f"{SITE}/old"


def test_a_refresh_is_one_of_five_redirects() -> None:
    chain = {f"{SITE}/{at}": page(f"0;url=/{at + 1}") for at in range(8)}
    assert scraped(chain, f"{SITE}/0") == (
        "too_many_redirects",
        [f"{SITE}/robots.txt", *(f"{SITE}/{at}" for at in range(6))],
    )
    assert scraped({**chain, f"{SITE}/6": TARGET}, f"{SITE}/1")[0] == f"{SITE}/6"
    around = {f"{SITE}/a": page("0;url=/b"), f"{SITE}/b": page("0;url=/a")}
    assert scraped(around, f"{SITE}/a")[0] == "too_many_redirects"


@pytest.mark.shows("B43")
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("http://169.254.169.254/latest/", "url_host_not_allowed"),
        ("http://localhost/", "url_host_not_allowed"),
        ("https://name:word@example.com/", "url_credentials_not_allowed"),
    ],
)
def test_a_refresh_to_what_must_not_be_fetched_is_refused(target: str, code: str) -> None:
    assert scraped({f"{SITE}/old": page(f"0;url={target}")}) == (code, [f"{SITE}/robots.txt", f"{SITE}/old"])


def test_robots_of_the_target_are_kept_to() -> None:
    pages = {f"{SITE}/old": page("0;url=/new"), f"{SITE}/robots.txt": "User-agent: *\nDisallow: /new"}
    robots = Fetched(f"{SITE}/robots.txt", 200, "text/plain", "utf-8", pages[f"{SITE}/robots.txt"].encode())
    code, asked = scraped({**pages, f"{SITE}/robots.txt": robots})
    assert code == "robots_disallowed"
    assert f"{SITE}/new" not in asked


def test_a_refresh_does_not_leave_the_hosts_of_its_crawl() -> None:
    pages: dict[str, object] = {f"{SITE}/old": page(f"0;url={OTHER}/"), f"{OTHER}/": TARGET}
    code, asked = scraped(pages, hosts=["example.com"])
    assert code == "other_host"
    assert not [url for url in asked if url.startswith(OTHER)]
    assert scraped(pages)[0] == f"{OTHER}/"


def test_a_refresh_waits_for_its_sites_turn_and_continues_there() -> None:
    fetcher = InMemoryFetcher({f"{SITE}/old": page(f"0;url={OTHER}/"), f"{OTHER}/": TARGET})
    harness = ScraperHarness(fetcher)
    rates = DomainRates.parse("other.example=1:1,*=100:100")
    harness.rates = RateLimiter(rates, InMemoryHosts(), StoreClock(harness.clock))
    results = InMemoryQueue()
    batch = ScrapeBatch(harness.parts(), results, InMemoryQueue())
    # robots.txt of the other site takes its first turn.
    (wait,) = batch([delivery("/old")])
    assert isinstance(wait, Wait)
    assert wait.resume == f"4 {OTHER}/"
    harness.clock.tick(wait.after_s)
    batch([replace(delivery("/old", deadline=harness.clock.monotonic() + 60.0), resume=wait.resume)])
    result = read(ScrapeResult, results.bodies[-1])
    assert result.document is not None
    assert (result.document.url, result.document.final_url) == (f"{SITE}/old", f"{OTHER}/")
    assert fetcher.requested.count(f"{SITE}/old") == 1
    batch.close()


def test_stored_and_known_content_is_read_as_it_is() -> None:
    """Replay shows what was kept; nothing is asked of any site."""
    harness = ScraperHarness(InMemoryFetcher())
    parts, now = harness.parts(), harness.clock.now()
    stored = Stored(
        ref=harness.blobs.put(page("0;url=/new").encode(), kind="raw", content_type="text/html"),
        content_type="text/html",
        charset="utf-8",
        final_url=f"{SITE}/old",
        stored_at=now,
        fetched_at=now,
    )
    recent = StoredPage(stored, max_age=timedelta(hours=1))
    for before in (StoredPage(instead=stored), recent):
        fetch = parts.rates.page(1060.0)
        found = asyncio.run(execute_scrape(f"{SITE}/old", None, parts=parts, fetch=fetch, before=before))
        assert (found.final_url, found.text) == (f"{SITE}/old", "Moved.")
    assert harness.fetcher.requested == []
