"""The proxy of a rendered page's browser: what it refuses, what it passes on, where it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from indexmill.scraper.adapters.guarded_proxy import GuardedProxy, ProxyLimits
from indexmill.scraper.adapters.http_fetcher import PinnedBackend
from tests.integration.scraper.site import Site, answer, running_site
from tests.integration.scraper.test_canaries import HOSTS, Network

MANY = ProxyLimits(connections=1_000, bytes=10_000_000)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with running_site() as canary, running_site(host="::1") as six, running_site() as public:
        public.routes["/"] = answer("public", connection="close")
        yield Network(canary, six, public)


@asynccontextmanager
async def proxy(
    network: Network | None = None, site: Site | None = None, limits: ProxyLimits = MANY
) -> AsyncIterator[tuple[GuardedProxy, list[str]]]:
    """A proxy and what it found too much."""
    allowed = frozenset({site.host} if site is not None else ())
    backend = PinnedBackend(allowed)
    if network is not None:
        backend = PinnedBackend(allowed, resolver=network.resolve, inner=network)
    excess: list[str] = []
    async with GuardedProxy(backend, allowed_hosts=allowed, limits=limits, on_excess=excess.append) as made:
        yield made, excess


async def ask(made: GuardedProxy, head: str, body: bytes = b"", *, then: bytes = b"") -> bytes:
    """Return all that the proxy sends until it closes; `then` is sent after its first bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        async with asyncio.timeout(30):
            first = await reader.read(65_536)
            writer.write(then)
            return first + await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.shows("S10", "B33", "B34", "B35", "B36", "B37", "B38", "B39", "B40", "B41", "B44")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("way", ["GET", "CONNECT"])
async def test_a_private_host_is_refused_however_it_is_written(network: Network, host: str, way: str) -> None:
    if host == "rebinding.example":
        network._answers[host][:] = [["127.0.0.1"]]
    network.dialled.clear()
    target = f"http://{host}/" if way == "GET" else host if ":" in host[-6:] else f"{host}:80"
    async with proxy(network) as (made, _):
        got = await ask(made, f"{way} {target} HTTP/1.1\nHost: x")
    assert got.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")) or got == b""
    assert network.dialled == []
    assert (network.canary.connections, network.six.connections) == (0, 0)


async def test_a_name_is_resolved_for_each_connection(network: Network) -> None:
    network._answers["rebinding.example"] = [["93.184.215.14"], ["127.0.0.1"]]
    async with proxy(network) as (made, _):
        got = [await ask(made, "GET http://rebinding.example/ HTTP/1.1\nHost: x") for _ in range(2)]
    assert [each.partition(b"\r\n")[0][9:12] for each in got] == [b"200", b"403"]
    assert network.canary.connections == 0


async def test_a_request_is_passed_on_with_its_body_and_ends_the_connection(site: Site) -> None:
    bodies: list[bytes] = []

    async def form(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await reader.readexactly(7))
        writer.write(
            b"HTTP/1.1 103 Early Hints\r\n\r\n"
            + answer("done", keep_alive="timeout=60", connection="keep-alive")
        )

    site.route("/form?a=%20b", form)
    head = (
        f"POST {site.url}/form?a=%20b HTTP/1.1\nHost: 127.0.0.1:{site.port}\nContent-Length: 7\n"
        "Proxy-Connection: keep-alive\nProxy-Authorization: Basic eA==\nX-Own: 1\nX-Hop: 1\nConnection: X-Hop"
    )
    # A second request on the connection could be meant for another host.
    second = f"GET {site.url}/second HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    async with proxy(site=site) as (made, _):
        got = await ask(made, head, b"a=words", then=second)
    assert bodies == [b"a=words"]
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.endswith(b"\r\n\r\ndone")
    assert b"connection: close" in got.lower()
    assert b"keep-alive" not in got.lower()
    sent = site.heads[0].lower()
    assert "x-own: 1" in sent
    assert "connection: close" in sent
    assert all(word not in sent for word in ("proxy-", "x-hop"))
    assert site.paths == ["/form?a=%20b"]


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd",
    ],
)
async def test_an_answer_of_any_framing_is_passed_on(raw: bytes, site: Site) -> None:
    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    site.route("/", send)
    async with proxy(site=site) as (made, _):
        got = await ask(made, f"GET {site.url}/ HTTP/1.1\nHost: x")
    assert b"abc" in got
    assert b"abcd" not in got


async def test_a_tunnel_carries_both_directions(site: Site) -> None:
    site.routes["/"] = answer("through", connection="close")
    async with proxy(site=site) as (made, _):
        inner = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + inner)
        async with asyncio.timeout(30):
            got = await reader.readuntil(b"through")
            got += await reader.readuntil(b"404 Not Found")
        writer.close()
    assert got.startswith(b"HTTP/1.1 200 ")
    assert site.paths == ["/", "/none"]


@pytest.mark.shows("S8")
async def test_requests_and_bytes_are_counted(site: Site) -> None:
    site.page("/", "x" * 10_000)
    request = f"GET {site.url}/ HTTP/1.1\nHost: x"
    async with proxy(site=site, limits=ProxyLimits(connections=2, bytes=10_000_000)) as (made, excess):
        got = [await ask(made, request) for _ in range(4)]
        assert [bool(each) for each in got] == [True, True, False, False]
        assert excess == ["requests"]
    async with proxy(site=site, limits=ProxyLimits(connections=100, bytes=15_000)) as (made, excess):
        got = [await ask(made, request) for _ in range(4)]
        assert [each.endswith(b"x" * 10_000) for each in got] == [True, False, False, False]
        assert excess == ["bytes"]
    assert len(site.heads) == 4


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\nHost: x",
        "NONSENSE",
        "GET http:///x HTTP/1.1\nHost: x",
        "CONNECT x HTTP/1.1\nHost: x",
        "CONNECT [::1 HTTP/1.1\nHost: x",
    ],
)
async def test_what_is_no_request_for_a_host_gets_nothing(head: str) -> None:
    async with proxy() as (made, _):
        got = await ask(made, head)
    assert got == b"" or got.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))


async def test_its_end_closes_what_is_open(site: Site) -> None:
    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    site.route("/", silent)
    async with proxy(site=site) as (made, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(f"GET {site.url}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(30):
            while not site.heads:
                await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
