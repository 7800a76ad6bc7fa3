"""The example for browsers: its scripts follow a job through its proxy, in Node and in Chromium."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from examples.browser.proxy import make_app
from indexmill.client import Client
from local.stack.chromium import chromium
from tests.support import browser
from tests.support.aiohttp_server import served
from tests.support.repository import ROOT
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

SCRIPT = ROOT / "examples" / "browser" / "watch.js"
NODE = browser.node()
CHROMIUM = chromium()
ORDER = ["pending", "scraping", "chunking", "embedding", "done"]
# What a browser has and Node has not: paths are relative to the page.
HARNESS = """
const [script, base, jobId, how] = process.argv.slice(1);
const { fetch: plain, EventSource: Plain } = globalThis;
globalThis.fetch = (path, more) => plain(new URL(path, base), more);
globalThis.EventSource = class extends Plain { constructor(path) { super(new URL(path, base).href); } };
const source = require('fs').readFileSync(script, 'utf8') + '; return { pollJob, streamJob };';
const follow = new Function(source)()[how];
const shown = [];
follow(jobId, (job) => shown.push(job)).then(
  () => console.log(JSON.stringify(shown)),
  (error) => { console.error(error.message); process.exitCode = 1; });
"""


@pytest.fixture(scope="module")
def proxy(stack: RunningStack) -> Iterator[str]:
    with served(make_app(stack.gateway, stack.api_key)) as address:
        yield address


def run_node(proxy: str, job_id: str, how: str) -> subprocess.CompletedProcess[str]:
    command = [NODE or "", "--experimental-eventsource", "-e", HARNESS, "--", str(SCRIPT), proxy, job_id, how]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def in_order(statuses: list[str]) -> bool:
    positions = [ORDER.index(status) for status in statuses]
    return positions == sorted(positions)


@pytest.mark.skipif(NODE is None, reason="there is no node on the path")
@pytest.mark.parametrize("how", ["pollJob", "streamJob"])
def test_in_node_both_scripts_see_a_job_to_its_end(
    stack: RunningStack, client: Client, proxy: str, how: str
) -> None:
    if how == "streamJob" and not browser.node_has_event_source():
        pytest.skip("this Node has no EventSource (before 20.18 and 22.3)")
    job_id = client.submit(f"{stack.site}/handbook.html", "browser").job_id
    ran = run_node(proxy, job_id, how)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(ran.stdout)
    assert in_order([job["status"] for job in shown])
    assert shown[-1] == client.get(job_id).model_dump(mode="json")


@pytest.mark.skipif(
    not browser.node_has_event_source(), reason="there is no node with EventSource on the path"
)
def test_in_node_a_refused_stream_ends(proxy: str) -> None:
    ran = run_node(proxy, "5e2c11f4-0000-4000-8000-000000000000", "streamJob")
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "Job stream was refused")


def test_the_proxy_shows_the_page_and_nothing_else_of_its_folder(proxy: str) -> None:
    with httpx.Client(base_url=proxy) as http:
        assert [http.get(path).status_code for path in ("/", "/watch.js")] == [200, 200]
        assert [http.get(path).status_code for path in ("/proxy.py", "/../proxy.py", "/x")] == [404] * 3
        assert http.get("/api/orchestrator/jobs").status_code == 200


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path, nor in INDEXMILL_CHROMIUM")
@pytest.mark.parametrize("how", ["stream", "poll"])
async def test_in_chromium_the_page_shows_a_job_to_its_end(stack: RunningStack, proxy: str, how: str) -> None:
    async with browser.opened(CHROMIUM or "", proxy) as page:
        await page.evaluate(f"form.elements.how.value = '{how}'")
        await page.evaluate(f"form.elements.url.value = '{stack.site}/history/flood-of-1911.html'")
        await page.evaluate("form.requestSubmit()")
        await page.until("story.querySelector('[data-status=done], [data-status=failed]')?.innerText", 40)
        statuses = await page.evaluate("[...story.children].map((line) => line.dataset.status)")
    assert statuses[-1] == "done"
    assert in_order(statuses)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path, nor in INDEXMILL_CHROMIUM")
async def test_in_chromium_a_token_follows_a_job_without_any_key(
    stack: RunningStack, http: httpx.Client, client: Client
) -> None:
    job_id = client.submit(f"{stack.site}/lost.html", "browser").job_id
    url = http.post(f"/orchestrator/jobs/{job_id}/stream-token").json()["url"]
    script = """new Promise((resolve, reject) => {
      const source = new EventSource(URL), seen = [];
      source.onerror = () => source.readyState === EventSource.CLOSED && reject(new Error('refused'));
      source.onmessage = ({ data }) => {
        const { status } = JSON.parse(data);
        if (seen.push(status) && status === 'failed') resolve((source.close(), seen));
      };
    })"""
    # A page of the gateway itself: the stream is then of the same origin.
    async with browser.opened(CHROMIUM or "", stack.gateway) as page:
        seen = await page.evaluate(script.replace("URL", json.dumps(url)))
    assert seen[-1] == "failed"
