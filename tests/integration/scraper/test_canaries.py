"""Neither door leads to a private service: canaries on both loopback addresses see no connection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpcore
import pytest

from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.scraper.adapters.http_fetcher import HttpFetcher, PinnedBackend, system_resolver
from indexmill.scraper.api import routes
from indexmill.scraper.settings import ScraperApiSettings, ScraperWorkerSettings
from indexmill.scraper.wiring import Overrides, build_batch, build_use_cases
from tests.integration.scraper.conftest import LIMITS
from tests.integration.scraper.site import Site, answer, redirect, running_site
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.function_env import environment
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue

PUBLIC = "93.184.215.14"
LOCAL = """127.0.0.1 127.0.0.1. 127.0.0.2 127.255.255.254 127.1 127.0.1 0 0.0.0.0 2130706433 017700000001
    0x7f000001 0x7f.1 0x7F.0.0.1 0177.0.0.1 0177.1 127.0.0.01 localhost LOCALHOST localhost. a.localhost
    \uff11\uff12\uff17.0.0.1 \u2460\u2461\u2466.\u24ea.\u24ea.\u2460 127\u30020\u30020\u30021 l\u2113
    [::1] [0:0:0:0:0:0:0:1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [::1%25lo] [64:ff9b::7f00:1]
    [64:ff9b:1::7f00:1] [2002:7f00:1::] [fe80::1%25lo] [fec0::1] [fc00::1] [fd00:ec2::254] [ff02::1]
    [2001:db8::1] [5f00::1] 169.254.169.254 2852039166 169.254.170.2 metadata.google.internal instance-data
    10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 198.18.0.1 192.0.0.1 224.0.0.1 240.0.0.1 255.255.255.255
    printer.local intranet
    user@127.0.0.1 a.example@127.0.0.1 127.0.0.1\\@a.example 127.0.0.1:6379 a.example:22
    private.example both.example mapped.example six.example rebinding.example"""
HOSTS = LOCAL.split()
NAMES = {
    "public.example": [[PUBLIC]],
    "private.example": [["127.0.0.1"]],
    "both.example": [[PUBLIC, "127.0.0.1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
    "six.example": [["::1"]],
    # The page's name is resolved for robots.txt first; both connections are closed by the site.
    "rebinding.example": [[PUBLIC], ["127.0.0.1"]],
}


class Network(httpcore.AnyIOBackend):
    """Any name server, and a network where each address but a public one is this machine, on any port."""

    def __init__(self, canary: Site, six: Site, public: Site) -> None:
        self.canary, self.six, self.public = canary, six, public
        self.dialled: list[str] = []
        self._answers = {name: list(answers) for name, answers in NAMES.items()}

    async def resolve(self, host: str, port: int) -> list[str]:
        answers = self._answers.get(host)
        if answers is None:
            return await system_resolver(host, port)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host == PUBLIC:
            return await super().connect_tcp("127.0.0.1", self.public.port, timeout)
        to = self.six if ":" in host else self.canary
        return await super().connect_tcp("::1" if ":" in host else "127.0.0.1", to.port, timeout)


@pytest.fixture(scope="module")
def canaries() -> Iterator[tuple[Site, Site]]:
    with running_site() as four, running_site(host="::1") as six:
        for each in (four, six):
            each.page("/", "secret")
        yield four, six


@pytest.fixture
def public() -> Iterator[Site]:
    """The site behind the public address; it closes each connection."""
    with running_site() as running:
        for path in ("/robots.txt", "/"):
            running.routes[path] = answer("", status="404 Not Found", connection="close")
        yield running


@pytest.fixture
def network(canaries: tuple[Site, Site], public: Site) -> Network:
    return Network(*canaries, public)


Door = Callable[[str], str | None]
"""Scrapes a URL and returns the code of its error."""
ENVIRONMENT = {
    **environment("ScraperApi"),
    **dict.fromkeys(
        ("SCRAPE_QUEUE_URL", "SCRAPE_DLQ_URL", "CALLBACKS_QUEUE_URL", "BUCKET_NAME", "STATE_TABLE"), "x"
    ),
    "ALLOWED_PRIVATE_HOSTS": "",
    "DOMAIN_RATES": "*=unlimited",
}


@pytest.fixture(params=["api", "worker"])
def door(request: pytest.FixtureRequest, network: Network) -> Iterator[Door]:
    backend = PinnedBackend(frozenset(), resolver=network.resolve, inner=network)
    parts: Overrides = {
        "fetcher": HttpFetcher(user_agent="x/1", limits=LIMITS, backend=backend),
        "blobs": InMemoryBlobs(),
        "robots_cache": InMemoryRobotsCache(),
        "queue": InMemoryQueue(),
    }
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    if request.param == "api":
        api = build_use_cases(ScraperApiSettings.from_environment(ENVIRONMENT), **parts)
        observability = Observability("scraper")
        handle = lambda_handler(create_app([routes(api, 10.0)], observability), observability)

        def scrape(url: str) -> str | None:
            event = api_event("POST", "/scraper/scrape", {"url": url}, caller=caller_claims())
            body = json.loads(handle(event, FakeContext())["body"])
            return body["error"]["code"] if "error" in body else None

        yield scrape
    else:
        queue = InMemoryQueue()
        parts = {**parts, "queue": queue, "source": InMemoryQueue()}
        batch = build_batch(ScraperWorkerSettings.from_environment(ENVIRONMENT), **parts)

        def scrape(url: str) -> str | None:
            task = ScrapeTask(message_id="m", job_id="j", url=url)
            batch([Delivery(task, 1, time.monotonic() + 20, tries=4)])
            failed = read(StageResult, queue.bodies.pop()).failure
            return (failed.cause or failed.code) if failed is not None else None

        yield scrape
        batch.close()
    asyncio.set_event_loop(None)
    loop.close()


REFUSED = {"url_host_not_allowed", "url_invalid", "url_credentials_not_allowed"}


@pytest.mark.shows("S10", "B32", "B33", "B34", "B35", "B36", "B37", "B38", "B39", "B40", "B41", "B44")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.shows("R261")
def test_no_spelling_of_a_private_host_is_connected_to(
    door: Door, network: Network, canaries: tuple[Site, Site], host: str
) -> None:
    before = [canary.connections for canary in canaries]
    assert door(f"http://{host}/") in REFUSED
    assert [canary.connections for canary in canaries] == before
    assert set(network.dialled) <= ({PUBLIC} if host == "rebinding.example" else set())


@pytest.mark.shows("S10", "B42")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.shows("R261")
def test_no_redirect_to_a_private_host_is_connected_to(
    door: Door, network: Network, public: Site, canaries: tuple[Site, Site], host: str
) -> None:
    if host == "rebinding.example":
        network._answers[host].pop(0)
    before = [canary.connections for canary in canaries]
    public.route("/a", redirect(f"http://{host}/"))
    # httpx itself refuses a few of them as a broken answer.
    assert door("http://public.example/a") in REFUSED | {"connection_error"}
    assert [canary.connections for canary in canaries] == before
    assert set(network.dialled) == {PUBLIC}


@pytest.mark.shows("B43")
def test_a_page_that_points_inside_leads_nowhere(
    door: Door, network: Network, public: Site, canaries: tuple[Site, Site]
) -> None:
    before = [canary.connections for canary in canaries]
    public.page(
        "/a",
        "<!doctype html><meta http-equiv=refresh content='60; url=http://127.0.0.1/'>"
        "<link rel=canonical href='http://127.0.0.1/'><link rel=preload href='http://[::1]/' as=script>"
        "<base href='http://127.0.0.1/'><main><p>Words.<img src='http://127.0.0.1/'></p></main>",
    )
    public.page("/b", "<!doctype html><meta http-equiv=refresh content='0; url=http://127.0.0.1/'><p>Words.")
    assert door("http://public.example/a") is None
    assert door("http://public.example/b") == "url_host_not_allowed"
    assert [canary.connections for canary in canaries] == before
    assert set(network.dialled) == {PUBLIC}


def test_the_canaries_would_be_reached(network: Network, canaries: tuple[Site, Site]) -> None:
    """The tests above can fail: without the guard the same network leads to both canaries."""
    before = [canary.connections for canary in canaries]
    allowed = frozenset({("127.0.0.1", 80), ("::1", 80)})
    backend = PinnedBackend(allowed, resolver=network.resolve, inner=network)

    async def both() -> list[bytes]:
        fetcher = HttpFetcher(user_agent="x", allowed_hosts=allowed, limits=LIMITS, backend=backend)
        urls = ("http://127.0.0.1/", "http://[::1]/")
        pages = [await fetcher.fetch(url, deadline=time.monotonic() + 5) for url in urls]
        await fetcher.close()
        return [page.body for page in pages]

    assert asyncio.run(both()) == [b"secret", b"secret"]
    assert [canary.connections for canary in canaries] == [count + 1 for count in before]


def test_there_are_enough_cases() -> None:
    assert len(set(HOSTS)) >= 60
