"""No log, metric, incident or error has the query of a URL, whatever is done with the URL."""

from __future__ import annotations

from pathlib import Path

import httpx
import psycopg
import pytest
from aiohttp import web

from indexmill.client import Client
from indexmill.contracts.crawl import CrawlRules
from local.faults.invariants import secrets
from tests.support.aiohttp_server import served
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

NAME = "signature=of-an-e2e-url-"
"""Beginning of each query."""
TARGETS = ("page", "lost", "private", "port", "loop", "no-url")
"""Where the second site redirects to."""
PAGES = ("refresh", "canonical", "links", "sitemap.xml", "robots.txt")
"""What else it has, with such URLs in it."""
REFUSED = ("http://127.0.0.1:9/", "ftp://site.example/", "http://[::1/", "http://user:secret@site.example/")


def found(stack: RunningStack) -> set[str]:
    """Return the places, outside of those that keep URLs, where a query of the test is."""
    canary = secrets.Canary("a query", NAME, secrets.URL_STORE)
    metrics = httpx.get(f"{stack.control}/metrics", timeout=10.0).text
    with psycopg.connect(stack.database_url) as database:
        leaks = secrets.leaks(database, [canary], Path(stack.state) / "logs", [("metrics", metrics)])
    return {each.what for each in leaks}


def second_site(stack: RunningStack) -> web.Application:
    """Return a site that redirects, or names in a page, to URLs with a query."""
    own = f"http://127.0.0.1:{stack.second_site_port}"
    targets = (f"{stack.site}/handbook.html", f"{stack.site}/lost.html", "http://10.0.0.1/", f"{own}1/")
    more = (f"{own}/loop", "http://[::1/")
    locations = dict(zip(TARGETS, (*targets, *more), strict=True))
    words = "<p>The boathouse keeps the tables of the tides, and lends them for a week.</p>" * 5
    pages = {
        "refresh": f"<meta http-equiv=refresh content='0; url={stack.site}/index.html?{NAME}refresh'>",
        "canonical": f"<link rel=canonical href='{own}/named?{NAME}canonical'>{words}",
        "links": f"{words}<p><a href='/lost?{NAME}link'>lost</a> <a href='?{NAME}own'>again</a></p>",
        "sitemap.xml": (
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>"
            f"<url><loc>{own}/page?{NAME}entry</loc></url></urlset>"
        ),
        "robots.txt": "User-agent: *\nDisallow: /*disallowed",
    }
    kinds = dict(
        zip(PAGES, ("text/html", "text/html", "text/html", "application/xml", "text/plain"), strict=True)
    )

    async def answer(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name in pages:
            return web.Response(text=pages[name], content_type=kinds[name])
        if name not in locations:
            return web.Response(status=404)
        return web.Response(status=302, headers={"Location": f"{locations[name]}?{NAME}{name}"})

    made = web.Application()
    made.router.add_get("/{name}", answer)
    return made


def use_urls(stack: RunningStack, client: Client, http: httpx.Client) -> None:
    """Use URLs in every way: pages good and bad, redirects, refusals, filters, texts and a preview."""
    pages = [f"{stack.site}{page}" for page in ("/handbook.html", "/lost.html", "/status/403", "/robots.txt")]
    second = f"http://127.0.0.1:{stack.second_site_port}"
    pages += [f"{second}/{name}" for name in (*TARGETS, *PAGES, "disallowed")]
    urls = [f"{page}?{NAME}{at}" for at, page in enumerate(pages)]
    jobs = [client.submit(url, "queries").job_id for url in urls]
    for url in (*urls, *(f"{each}?{NAME}" for each in REFUSED)):
        http.post("/scraper/scrape", json={"url": url})
        http.post("/orchestrator/jobs", json={"url": url, "corpus_name": "queries", "dry_run": True})
        http.get("/orchestrator/jobs", params={"url": url, "no_such_filter": url})
        http.get("/orchestrator/jobs", params={"url": url})
        http.post("/embedding/embed", json={"url": url, "texts": ["a text"], "corpus_name": "queries"})
    assert http.get("/orchestrator/jobs", params={"url": urls[0]}).json()["jobs"][0]["url"] == urls[0]
    client.cancel(client.submit(f"{stack.site}/slow?seconds=1&{NAME}", "queries").job_id, "enough")
    rules = CrawlRules(max_pages=5, include=[f"*{NAME}*"])
    crawls = [
        client.crawl(f"{second}/links?{NAME}crawl", "queries", rules),
        client.sitemap(f"{second}/sitemap.xml?{NAME}sitemap", "queries", rules),
    ]
    client.wait(jobs, 60)
    for each in crawls:
        assert client.wait_batch(each.batch_id or "", 60).total >= 2
    stack.disturb("OrchestratorSweeperEveryMinute", fire=True)


@pytest.mark.shows("B88")
def test_no_sink_has_the_query_of_a_url(stack: RunningStack, client: Client, http: httpx.Client) -> None:
    with served(second_site(stack), stack.second_site_port):
        use_urls(stack, client, http)
    assert found(stack) == set()


@pytest.mark.shows("B88")
def test_the_search_would_find_one(stack: RunningStack) -> None:
    log = Path(stack.state) / "logs" / "functions" / "PlantedQuery.jsonl"
    with psycopg.connect(stack.database_url, autocommit=True) as database:
        database.execute("INSERT INTO incidents (kind, subject) VALUES ('planted', %s)", (f"?{NAME}",))
        try:
            log.write_text(f'{{"message":"http://site.example/?{NAME}1"}}', encoding="utf-8")
            assert {"occurs in functions/PlantedQuery.jsonl", "occurs in incidents.subject"} <= found(stack)
        finally:
            log.unlink(missing_ok=True)
            database.execute("DELETE FROM incidents WHERE kind = 'planted'")
