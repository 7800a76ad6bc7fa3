"""Callers that are not ours: a page of another origin in a browser, and a flood of keys that are invalid."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import pytest
from aiohttp import web

from local.stack.chromium import chromium
from tests.support import browser
from tests.support.aiohttp_server import served
from tests.support.stack import RunningStack, running_stack

pytestmark = pytest.mark.e2e

CHROMIUM = chromium()
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium on the path, nor in INDEXMILL_CHROMIUM"
)
PER_ADDRESS: Final = 300
LIBRARY = """
const ask = async (path, body, key = KEY) => {
  const headers = { 'X-API-Key': key, 'X-Request-Id': 'from-another-origin' };
  if (body) headers['Content-Type'] = 'application/json';
  const method = body ? 'POST' : 'GET';
  const answer = await fetch(GATEWAY + path, { method, headers, body: JSON.stringify(body) });
  return { status: answer.status, id: answer.headers.get('X-Request-Id'), json: await answer.json() };
};
const watch = (url) => new Promise((resolve, reject) => {
  const source = new EventSource(url), seen = [];
  source.onerror = () => source.readyState === EventSource.CLOSED && reject(new Error('no stream'));
  source.onmessage = ({ data }) => {
    const { status } = JSON.parse(data);
    if (seen.push(status) && ['done', 'failed'].includes(status)) resolve((source.close(), seen));
  };
});
"""


@pytest.fixture(scope="module")
def other_origin() -> Iterator[str]:
    """Serve an empty page on a port of its own, which is another origin than the gateway's."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<title>elsewhere</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    with served(app) as address:
        yield address


@pytest.fixture(scope="module")
def open_stack(other_origin: str) -> Iterator[RunningStack]:
    """Yield a stack that allows this origin and another one, behind its web ACL."""
    origins = f"https://app.example.com,{other_origin}"
    limit = f"EdgeRequestsPerAddress={PER_ADDRESS}"
    with running_stack(f"AllowedOrigins={origins}", "Edge=waf", limit) as running:
        yield running


def script(stack: RunningStack, body: str) -> str:
    known = f"const GATEWAY = {json.dumps(stack.gateway)}, KEY = {json.dumps(stack.api_key)};"
    return f"(async () => {{ {known} {LIBRARY} {body} }})()"


@needs_chromium
@pytest.mark.shows("S12")
async def test_a_page_of_an_allowed_origin_submits_watches_and_searches(
    open_stack: RunningStack, other_origin: str
) -> None:
    body = f"""
      const submitted = await ask('/orchestrator/jobs',
        {{ url: '{open_stack.site}/handbook.html', corpus_name: 'elsewhere' }});
      const token = await ask(`/orchestrator/jobs/${{submitted.json.job_id}}/stream-token`, {{}});
      const seen = await watch(token.json.url);
      const found = await ask('/embedding/search', {{ corpus_name: 'elsewhere', query: 'opening hours' }});
      const refused = await ask('/orchestrator/jobs', undefined, 'a-key-of-none');
      const wrong = await ask('/orchestrator/jobs', {{}});
      return {{ submitted, seen, found, refused, wrong }};
    """
    async with browser.opened(CHROMIUM or "", other_origin) as page:
        told: dict[str, Any] = await page.evaluate(script(open_stack, body))
    assert (told["submitted"]["status"], told["submitted"]["id"]) == (202, "from-another-origin")
    assert told["seen"][-1] == "done"
    assert told["found"]["status"] == 200
    assert told["found"]["json"]["results"]
    # Errors can be read as well: of the gateway, and of a function.
    assert (told["refused"]["status"], told["refused"]["json"]["error"]["code"]) == (401, "invalid_api_key")
    assert told["refused"]["id"]
    assert (told["wrong"]["status"], told["wrong"]["json"]["error"]["code"]) == (422, "validation_error")


def test_on_a_laptop_pages_of_this_machine_may_call_the_api(stack: RunningStack) -> None:
    """As a page that a developer's own server serves."""
    for origin in ("http://localhost:5173", "http://127.0.0.1:3000"):
        with httpx.Client(base_url=stack.gateway, headers={"Origin": origin}) as page:
            asked = page.options("/orchestrator/jobs", headers={"Access-Control-Request-Method": "POST"})
            listed = page.get("/orchestrator/jobs", headers={"X-API-Key": stack.api_key})
        assert [each.status_code for each in (asked, listed)] == [200, 200]
        assert {each.headers["Access-Control-Allow-Origin"] for each in (asked, listed)} == {origin}


@needs_chromium
@pytest.mark.shows("S12")
async def test_a_page_of_an_origin_that_is_not_allowed_is_refused(
    open_stack: RunningStack, other_origin: str
) -> None:
    stack, another = open_stack, other_origin.replace("127.0.0.1", "localhost")
    with stack.client() as client:
        job_id = client.submit(f"{stack.site}/lost.html", "browser").job_id
    with stack.http() as http:
        url = http.post(f"/orchestrator/jobs/{job_id}/stream-token").json()["url"]
    corpus = f"refused-{secrets.token_hex(4)}"
    body = f"""
      const outcome = (promise) => promise.then(() => 'read', (error) => error.message);
      const submission = {{ url: '{stack.site}/handbook.html', corpus_name: '{corpus}' }};
      return [
        await outcome(ask('/orchestrator/jobs', submission)),
        await outcome(ask('/embedding/search', {{ corpus_name: 'browser', query: 'hours' }})),
        await outcome(fetch(GATEWAY + '/orchestrator/jobs')),
        await outcome(watch({json.dumps(url)})),
      ];
    """
    async with browser.opened(CHROMIUM or "", another) as page:
        told = await page.evaluate(script(stack, body))
    # With several origins any page may read the gateway's own refusal, which holds nothing of a caller.
    assert told == ["Failed to fetch", "Failed to fetch", "read", "no stream"]
    # The refused preflight kept the submission from being sent.
    with stack.http() as http:
        assert http.get("/orchestrator/jobs", params={"corpus_name": corpus}).json()["count"] == 0


@pytest.mark.shows("S12", "S22")
def test_a_page_can_read_the_answer_of_the_web_acl(open_stack: RunningStack, other_origin: str) -> None:
    """Its headers are constant, so with several origins any page may read it; it names no caller."""
    with from_address(open_stack, "127.0.0.4") as http:
        large = {"url": "http://example.com/", "corpus_name": "x" * 20_000}
        answer = http.post("/scraper/scrape", json=large, headers={"Origin": other_origin})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.shows("B28", "S21")
def test_a_thousand_keys_of_one_address_are_refused_and_limit_no_other_address(
    open_stack: RunningStack,
) -> None:
    def asked() -> int:
        return int(open_stack.stand_in_state("membership")["calls"])

    before = asked()
    with from_address(open_stack, "127.0.0.3") as http, ThreadPoolExecutor(8) as pool:

        def ask(_: int) -> tuple[int, str]:
            answer = http.get("/orchestrator/jobs", headers={"X-API-Key": secrets.token_hex(16)})
            return answer.status_code, answer.json()["error"]["code"]

        answers = Counter(pool.map(ask, range(1000)))
        last = http.get("/orchestrator/jobs", headers={"X-Forwarded-For": "203.0.113.9"})
    assert answers == {(401, "invalid_api_key"): PER_ADDRESS, (429, "waf_rate_limited"): 1000 - PER_ADDRESS}
    assert (last.status_code, last.headers["Retry-After"]) == (429, "60")
    # What was refused asked no Membership.
    assert asked() - before <= PER_ADDRESS
    # Another address is not limited by it, and a key that was never seen is looked up: the breaker is closed.
    with from_address(open_stack, "127.0.0.5", open_stack.other_api_key) as http:
        assert http.get("/orchestrator/jobs").status_code == 200


@pytest.mark.shows("B89")
@pytest.mark.parametrize("sent", ["x" * 65, "x" * 9_000, "two words", "../../etc", "é"])
def test_an_id_that_is_not_sound_is_replaced_by_the_gateways(open_stack: RunningStack, sent: str) -> None:
    with from_address(open_stack, "127.0.0.6", open_stack.api_key) as http:
        given = http.get("/orchestrator/jobs", headers={"X-Request-Id": "a-sound-Id-1"})
        answer = http.get("/orchestrator/jobs", headers={"X-Request-Id": sent.encode()})  # type: ignore[dict-item]
    assert given.headers["X-Request-Id"] == "a-sound-Id-1"
    assert answer.headers["X-Request-Id"] == answer.headers["x-amzn-RequestId"]
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["X-Request-Id"])


def from_address(stack: RunningStack, address: str, key: str = "") -> httpx.Client:
    """Return HTTP from another address of this machine, with an `X-Forwarded-For` that is ignored."""
    transport = httpx.HTTPTransport(local_address=address, limits=httpx.Limits(max_connections=8))
    headers = {"X-Forwarded-For": "198.51.100.7"} | ({"X-API-Key": key} if key else {})
    return httpx.Client(base_url=stack.gateway, headers=headers, transport=transport, timeout=35.0)
