"""A stack with a renderer indexes a page that is empty before its scripts ran, through both doors."""

from __future__ import annotations

import pytest

from local.stack.chromium import chromium
from tests.support.stack import index, open_folder, running_stack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium on this machine"),
]
PAGE = (
    "<!doctype html><title>Application</title><div id=root></div><script>fetch('/data.json')"
    ".then(answer => answer.json()).then(text => root.innerHTML = '<h1>' + text + '</h1>')</script>"
)


def test_a_page_that_is_empty_before_its_scripts_ran_is_found() -> None:
    with open_folder() as pages:
        (pages / "app.html").write_text(PAGE)
        (pages / "data.json").write_text('"The lighthouse keeper counts every ship"')
        # Longer than the defaults: the machine may be busy.
        slow = ("ScrapeTimeout=60", "ScrapeVisibility=360")
        with (
            running_stack(*slow, site_root=pages, options=("--renderer",)) as stack,
            stack.client() as client,
        ):
            job = index(client, f"{stack.site}/app.html", "apps", within_s=180)
            assert (job.status, job.title, job.chunk_count) == ("done", "Application", 1)
            hit = client.search("lighthouse", "apps").results[0]
            assert "counts every ship" in hit.text
            # What its scripts made is compared, not the shell.
            assert index(client, f"{stack.site}/app.html", "apps", within_s=180).unchanged
            with stack.http() as http:
                answer = http.post("/scraper/scrape", json={"url": f"{stack.site}/app.html"}, timeout=60)
            assert (answer.json()["rendered"], answer.json()["title"]) == (True, "Application")
