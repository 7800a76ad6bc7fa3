"""Pages whose scripts fill them, rendered by this machine's Chromium within their limits."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from indexmill.contracts.errors import IndexmillError
from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.scraper.adapters.chromium_process import launched
from indexmill.scraper.adapters.chromium_renderer import RenderLimits
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_batch
from tests.integration.scraper.rendering import (
    AGENT,
    DEADLINE_S,
    PATIENT,
    changed,
    needs_chromium,
    page,
    program,
    rendered,
    renderer,
)
from tests.integration.scraper.site import Site
from tests.support.function_env import environment
from tests.support.processes import mentioning
from tests.support.stack import eventually
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue

pytestmark = [needs_chromium, pytest.mark.timeout(600)]
SHELL = "<!doctype html><html lang=en><title>Application</title><div id=root></div><script>%s</script>"
FILLS = (
    "fetch('/data.json').then(answer => answer.json()).then(data => setTimeout(() => {"
    "root.innerHTML = '<main><h1>' + data.heading + '</h1><p>' + data.text + '</p></main>'}, 50))"
)
DATA = json.dumps({"heading": "Harbours", "text": "The data says so, after the page was loaded."})
MB = 1024 * 1024


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of profiles; each test leaves nothing there, and no process."""
    # Chromium's sockets are below it: pytest's own folders have paths that are too long for them.
    with tempfile.TemporaryDirectory(prefix="im-render-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)
        assert mentioning(made) == []
        assert [each.name for each in Path(made).iterdir() if each.name.startswith("indexmill-page-")] == []


def test_a_shell_is_indexed_with_what_its_scripts_make_of_it(site: Site) -> None:
    site.page("/app", SHELL % FILLS)
    site.page("/data.json", DATA, "application/json")
    queue, blobs = InMemoryQueue(), InMemoryBlobs()
    names = ("SCRAPE_QUEUE_URL", "SCRAPE_DLQ_URL", "CALLBACKS_QUEUE_URL", "BUCKET_NAME", "STATE_TABLE")
    values = {
        **environment("ScraperWorker"),
        **dict.fromkeys(names, "x"),
        "ALLOWED_PRIVATE_HOSTS": f"127.0.0.1:{site.port}",
        "DOMAIN_RATES": "*=unlimited",
        "RENDERER_URL": f"chromium:{program()}",
        "USER_AGENT": AGENT,
        "SCRAPE_TIMEOUT_S": str(DEADLINE_S),
    }
    batch = build_batch(
        ScraperWorkerSettings.from_environment(values),
        queue=queue,
        source=InMemoryQueue(),
        blobs=blobs,
        robots_cache=InMemoryRobotsCache(),
        renderer=renderer(site),
    )
    try:
        task = ScrapeTask(message_id="m", job_id="j", url=f"{site.url}/app")
        batch([Delivery(task, 1, time.monotonic() + DEADLINE_S, tries=1)])
    finally:
        batch.close()
    document = read(StageResult, queue.bodies.pop()).model_dump()["document"]
    assert document["text"] == "# Harbours\n\nThe data says so, after the page was loaded."
    assert (document["rendered"], document["title"], document["language"]) == (True, "Application", "en")
    assert b"Harbours" in blobs.objects[document["raw_ref"]["key"]]
    # The page itself came once; its scripts ask under our name.
    assert site.paths.count("/app") == 1
    asked = next(head for head in site.heads if "/data.json" in head)
    assert AGENT in asked


def code(act: Callable[[], object]) -> tuple[str, bool]:
    """Return code and retry class of what `act` raises."""
    with pytest.raises(IndexmillError) as caught:
        act()
    return caught.value.code, caught.value.retryable


ENDLESS = "for (;;) {}"
HOG = "const all = []; setInterval(() => {const a = new Uint8Array(16 << 20); a.fill(1); all.push(a)}, 1)"
FLOOD = "for (let i = 0; i < 1000; i++) fetch('/data.json?' + i)"
LOAD = "fetch('/large').then(answer => answer.text())"
GROW = "root.textContent = 'x'.repeat(200_000)"
TOO_MUCH: dict[str, tuple[str, RenderLimits, tuple[str, bool]]] = {
    "time": (ENDLESS, replace(PATIENT, page_s=2.0), ("render_limit_exceeded", False)),
    "memory": (HOG, replace(PATIENT, memory_bytes=600 * MB), ("render_limit_exceeded", False)),
    "requests": (FLOOD, replace(PATIENT, requests=20), ("render_limit_exceeded", False)),
    "bytes": (LOAD, replace(PATIENT, transfer_bytes=MB), ("render_limit_exceeded", False)),
    "document": (GROW, replace(PATIENT, document_bytes=100_000), ("content_too_large", False)),
}


@pytest.mark.shows("S8")
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=pytest.mark.long) if what in ("bytes", "document") else what
        for what in TOO_MUCH
    ],
)
def test_a_page_that_needs_too_much_ends(what: str, site: Site) -> None:
    script, limits, expected = TOO_MUCH[what]
    site.page("/data.json", DATA, "application/json")
    site.page("/large", b"x" * (4 * MB), "text/plain")
    made = renderer(site, limits=limits)
    assert code(lambda: rendered(made, f"{site.url}/app", SHELL % script)) == expected
    assert len(site.heads) <= 20


@pytest.mark.long
def test_a_page_that_is_never_quiet_is_read_as_it_is(site: Site) -> None:
    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    site.route("/events", silent)
    site.page("/data.json", DATA, "application/json")
    script = f"new EventSource('/events'); {FILLS}"
    html = rendered(renderer(site, limits=replace(PATIENT, settle_s=5.0)), f"{site.url}/app", SHELL % script)
    assert "The data says so" in html


@pytest.mark.long
@pytest.mark.parametrize(
    "script",
    [
        "location = '/elsewhere'",
        "document.write(\"<meta http-equiv=refresh content='0;/elsewhere'>\")",
        "alert(1)",
    ],
)
def test_scripts_do_not_lead_the_page_away_or_stop_it(script: str, site: Site) -> None:
    site.page("/elsewhere", "Elsewhere.")
    site.page("/data.json", DATA, "application/json")
    html = rendered(renderer(site), f"{site.url}/app", SHELL % f"{script}; {FILLS}")
    assert "The data says so" in html
    assert "/elsewhere" not in site.paths


def test_a_browser_that_dies_is_an_outage(site: Site, folder: Path) -> None:
    async def kill(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        for each in mentioning(f"--user-data-dir={folder}"):
            os.kill(each, signal.SIGKILL)

    site.route("/data.json", kill)
    made = renderer(site)
    assert code(lambda: rendered(made, f"{site.url}/app", SHELL % FILLS)) == ("renderer_unavailable", True)


@pytest.mark.parametrize(
    "url", ["chromium:/nonexistent", "chromium:/bin/false", "ws://127.0.0.1:9/", "http://127.0.0.1:9"]
)
def test_a_browser_that_is_not_there_is_an_outage(url: str, site: Site) -> None:
    made = renderer(site, url=url)
    assert code(lambda: rendered(made, f"{site.url}/app", SHELL % FILLS)) == ("renderer_unavailable", True)


@pytest.mark.long
def test_what_is_left_of_the_jobs_time_is_kept_to(site: Site) -> None:
    made = renderer(site)
    soon = time.monotonic() + 2.0
    assert code(lambda: asyncio.run(made.render(page(site.url, SHELL % ENDLESS), deadline=soon))) == (
        "deadline_exceeded",
        True,
    )


WORKER = """
import asyncio, sys, tempfile, time
from tests.integration.scraper.rendering import page, renderer
from tests.integration.scraper.site import Site
url, html, tempfile.tempdir = sys.argv[1:]
site = Site()
site.port = int(url.rpartition(":")[2])
asyncio.run(renderer(site).render(page(url + "/app", html), deadline=time.monotonic() + 600))
"""


def test_the_browser_ends_with_a_worker_that_is_killed(site: Site, folder: Path) -> None:
    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    site.route("/data.json", silent)
    command = [sys.executable, "-c", WORKER, site.url, SHELL % FILLS, str(folder)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as worker:
        eventually(lambda: "/data.json" in site.paths or None, "the page's request", DEADLINE_S)
        browser = f"--user-data-dir={folder}"
        assert mentioning(browser)
        worker.kill()
    eventually(lambda: not mentioning(str(folder)) or None, "the browser's end", DEADLINE_S)
    # Its profile stays.
    profile, *others = folder.glob("indexmill-page-*")
    assert others == []
    shutil.rmtree(profile)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_a_browser_of_a_service_is_driven_by_its_url(
    scheme: str, site: Site, canary: Site, folder: Path
) -> None:
    site.page("/data.json", DATA, "application/json")
    script = f"fetch('{canary.url}/').catch(() => {{}}).finally(() => {{{FILLS}}})"

    async def both() -> bytes:
        # The service's own network would let it through.
        async with launched(
            changed(folder, add="--no-proxy-server"),
            proxy_port=9,
            user_agent="x",
            start_s=PATIENT.start_s,
            memory_bytes=PATIENT.memory_bytes,
            on_excess=str,
        ) as address:
            url = address if scheme == "ws" else f"http://{address.split('/')[2]}"
            return await renderer(site, url=url).render(
                page(f"{site.url}/app", SHELL % script), deadline=time.monotonic() + DEADLINE_S
            )

    html = asyncio.run(both()).decode()
    assert "The data says so" in html
    assert canary.connections == 0
