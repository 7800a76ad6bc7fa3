"""Crawls and dry runs as people start them."""

from __future__ import annotations

import json

import pytest

from indexmill.client import Client, CrawlRules
from tests.support.stack import RunningStack, indexmill

pytestmark = pytest.mark.e2e
NAMES = ("telescopes", "bookboat", "sound-archive")


@pytest.mark.shows("P038")
def test_a_site_is_crawled_by_a_command(stack: RunningStack, client: Client) -> None:
    page = f"{stack.site}/index.html"
    options = ("--corpus", "crawled", "--depth", "1", "--include", "/collections/*", "--state", stack.state)
    done = indexmill("crawl", page, *options, "--json")
    summary = json.loads(done.stdout)
    assert summary["finished"]
    assert done.returncode == 0
    urls = {job.url.removeprefix(stack.site) for job in client.list(batch_id=summary["batch_id"]).jobs}
    assert urls == {"/index.html", *(f"/collections/{name}.html" for name in NAMES)}
    assert summary["crawl"]["pages"] == summary["total"] == summary["done"] == len(urls)
    started = indexmill("crawl", page, "--no-wait", "--json", *options)
    canceled = indexmill(
        "cancel", "--batch", json.loads(started.stdout)["batch_id"], "--state", stack.state, "--json"
    )
    summary = json.loads(canceled.stdout)
    # Pages that did not change may all have ended before the second command started.
    assert summary["crawl"]["canceled"] or summary["finished"]


@pytest.mark.shows("X16")
def test_a_dry_run_describes_pages_and_makes_no_job(stack: RunningStack, client: Client) -> None:
    good, private = f"{stack.site}/handbook.html", f"{stack.site}/private/ledger.html"
    shown = indexmill("submit", "--dry-run", good, private, "--state", stack.state, "--json")
    assert shown.returncode == 1
    found = json.loads(shown.stdout)
    read, refused = found["pages"]
    assert (read["allowed"], read["error"], read["content_type"]) == (True, None, "text/html")
    assert read["size"] > 1_000
    assert read["chunks"] > 1
    assert read["usd"] > 0
    assert (refused["allowed"], refused["error"]["code"]) == (False, "robots_disallowed")
    assert "Disallow: /private/" in refused["error"]["message"]
    assert client.list(url=private).jobs == []
    crawl = client.dry_run(good, kind="crawl", crawl=CrawlRules(max_pages=7).model_dump())
    assert crawl.jobs == 7
