"""Malformed, unfinished and ambiguous requests (request smuggling)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from local.front.connection import MAX_HEADER_BYTES
from local.front.server import FrontOptions
from tests.integration.front.harness import Answer, Served, ServeFront, key_authorizer, policy, route

CHUNKED = "Transfer-Encoding: chunked"
BODY = b"3\r\nabc\r\n0\r\n\r\n"
BODY_LIMIT_S = 0.3


def wire(*headers: str, method: str = "POST", target: str = "/jobs", body: bytes = b"") -> bytes:
    """Return a request on a connection that the client would keep open."""
    lines = [f"{method} {target} HTTP/1.1", "Host: api.example.test", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest_asyncio.fixture
async def served(serve: ServeFront) -> Served:
    """Yield routes behind an authorizer that would allow every request."""
    return await serve(
        *(route(method, "/jobs", authorizer="Key") for method in ("GET", "POST")),
        route("GET", "/jobs/{job_id}", authorizer="Key"),
        route("GET", "/open"),
        Authorize=lambda event: policy(),
        authorizers=[key_authorizer()],
        options=FrontOptions(body_timeout_s=BODY_LIMIT_S, linger_s=0.1),
    )


@pytest_asyncio.fixture(autouse=True)
async def is_alive_afterwards(served: Served) -> AsyncIterator[None]:
    yield
    assert (await served.client.get("/open")).status_code == 200


async def refused_and_closed(served: Served, request: bytes) -> Answer:
    """Return the only response on a connection; no function and no authorizer was called."""
    answer = await served.raw(request, deadline_s=3.0)
    assert not served.functions.events
    assert answer.body.count(b"HTTP/1.") == 0, "something was answered twice"
    assert ("content-type", "application/json") in answer.headers
    return answer


FRAMINGS = {
    "a length and chunks": wire("X-API-Key: k", "Content-Length: 3", CHUNKED, body=BODY),
    "chunks and a length": wire("X-API-Key: k", CHUNKED, "Content-Length: 13", body=BODY),
    "two lengths": wire("Content-Length: 3", "Content-Length: 4", body=b"abcd"),
    "the same length twice": wire("Content-Length: 3", "Content-Length: 3", body=b"abc"),
    "a list of lengths": wire("Content-Length: 3, 3", body=b"abc"),
    "a negative length": wire("Content-Length: -1", body=b"abc"),
    "a signed length": wire("Content-Length: +3", body=b"abc"),
    "a hexadecimal length": wire("Content-Length: 0x3", body=b"abc"),
    "a length beyond all numbers": wire("Content-Length: " + "9" * 40, body=b"abc"),
    "an unknown coding": wire("Transfer-Encoding: xchunked", body=BODY),
    "chunks within another coding": wire("X-API-Key: k", "Transfer-Encoding: gzip, chunked", body=BODY),
    "chunks that are not last": wire("Transfer-Encoding: chunked, identity", body=BODY),
    "chunked twice": wire(CHUNKED, CHUNKED, body=BODY),
    "a chunk size that is none": wire("X-API-Key: k", CHUNKED, body=b"zz\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk size": wire("X-API-Key: k", CHUNKED, body=b"-3\r\nabc\r\n0\r\n\r\n"),
    "chunks in HTTP/1.0": wire("X-API-Key: k", CHUNKED, body=BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
}


@pytest.mark.shows("B17", "B21")
@pytest.mark.parametrize("name", FRAMINGS)
async def test_a_body_whose_end_is_in_doubt_is_400_and_the_connection_closed(
    served: Served, name: str
) -> None:
    assert (await refused_and_closed(served, FRAMINGS[name])).status == 400


async def test_what_follows_a_body_of_the_announced_length_is_no_part_of_it(served: Served) -> None:
    request = wire("X-API-Key: k", "Content-Length: 3", body=b"abc" + wire("Connection: close", method="GET"))
    answer = await served.raw(request)
    assert answer.status == 200
    assert served.functions.last()["body"] == "abc"
    assert served.functions.calls["Echo"] == 1
    assert b"HTTP/1.1 401 " in answer.body, "the second request has no key"


@pytest.mark.shows("B17")
@pytest.mark.parametrize(
    ("header", "body"),
    [("Content-Length: 30", b"abc"), (CHUNKED, b"3\r\nabc\r\n"), (CHUNKED, b"ffff\r\nabc"), (CHUNKED, b"3")],
)
async def test_a_body_that_never_ends_is_408_and_the_connection_closed(
    served: Served, header: str, body: bytes
) -> None:
    answer = await served.raw(wire("X-API-Key: k", header, body=body))
    assert (answer.status, answer.json()) == (408, {"message": "Request Timeout"})
    assert served.functions.calls == {"Authorize": 1}


@pytest.mark.shows("B17")
async def test_a_body_that_trickles_gets_no_more_time_than_any_other(served: Served) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = b""
    # A socket, since a StreamReader drops its buffer when the connection is reset after the response.
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.setblocking(False)
        await loop.sock_sendall(client, wire("X-API-Key: k", "Content-Length: 1000"))

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    await loop.sock_sendall(client, b"x")
                    await asyncio.sleep(BODY_LIMIT_S / 10)

        trickling = asyncio.create_task(trickle())
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(20):
                while piece := await loop.sock_recv(client, 1 << 16):
                    answer += piece
        trickling.cancel()
    assert Answer.read(answer).status == 408
    # The whole body would take a hundred times as long.
    assert loop.time() - began < 30 * BODY_LIMIT_S
    assert served.functions.calls == {"Authorize": 1}


SLOW_HEADERS = {
    "half a method": b"PO",
    "a line": b"GET /open HTTP/1.1",
    "a line and its end": b"GET /open HTTP/1.1\r\n",
    "a host": b"GET /open HTTP/1.1\r\nHost: api.example.test\r\n",
    "half a name": b"GET /open HTTP/1.1\r\nHost: api.example.test\r\nX-A",
    "half a value": b"GET /open HTTP/1.1\r\nHost: api.example.test\r\nX-A: b",
    "all but the last line end": b"GET /open HTTP/1.1\r\nHost: api.example.test\r\n\r",
}


@pytest.mark.shows("B17")
@pytest.mark.parametrize("name", SLOW_HEADERS)
async def test_a_header_that_never_ends_is_408_and_the_connection_closed(served: Served, name: str) -> None:
    answer = await served.raw(SLOW_HEADERS[name], deadline_s=60.0)
    assert (answer.status, answer.json()) == (408, {"message": "Request Timeout"})
    assert not served.functions.events


@pytest.mark.shows("B17")
async def test_a_header_that_trickles_gets_no_more_time_than_any_other(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET /open HTTP/1.1\r\nHost: api.example.test\r\n")
    answer = asyncio.create_task(reader.read())
    sent = 0
    while not answer.done() and sent < 1_000:
        with contextlib.suppress(ConnectionError):
            writer.write(b"X-A: b\r\n")
        sent += 1
        await asyncio.sleep(BODY_LIMIT_S / 10)
    with contextlib.suppress(ConnectionError):
        assert b" 408 " in (await answer)[:20]
    writer.close()
    assert sent < 1_000


async def test_a_connection_that_waits_for_its_next_request_has_no_limit_of_a_header(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for header in ((), ("Content-Length: 3",)):
        # The second one is refused before its body, which comes later and is no header.
        writer.write(wire(*header, method="GET", target="/open" if not header else "/nothing"))
        assert b"HTTP/1.1" in await reader.readuntil(b"\r\n\r\n")
        if header:
            writer.write(b"abc")
        await asyncio.sleep(2 * BODY_LIMIT_S)
        assert b"408" not in await _available(reader)
    writer.write(wire("Connection: close", method="GET", target="/open"))
    assert b"200" in await reader.read()
    writer.close()


async def _available(reader: asyncio.StreamReader) -> bytes:
    """Return what has arrived."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            return await reader.read(1 << 16)
    return b""


async def test_slow_bodies_delay_no_other_client(served: Served) -> None:
    writers = []
    for _ in range(50):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(wire("X-API-Key: k", "Content-Length: 1000", body=b"x"))
        writers.append(writer)
    async with asyncio.timeout(BODY_LIMIT_S):
        assert (await served.client.get("/open")).status_code == 200
    for writer in writers:
        writer.close()


HEADERS = {
    "a NUL": "X-A: a\x00b",
    "a lone CR": "X-A: a\rX-B: b",
    "a lone LF": "X-A: a\nX-API-Key: k",
    "a line that goes on": "X-A: a\r\n b",
    "a blank before the colon": "X-API-Key : k",
    "no name": ": a",
    "no colon": "X-A",
    "a second host": "Host: other.example.test",
}


@pytest.mark.shows("B20")
@pytest.mark.parametrize("name", HEADERS)
async def test_a_malformed_header_is_400(served: Served, name: str) -> None:
    assert (await refused_and_closed(served, wire(HEADERS[name], method="GET"))).status == 400


async def test_a_request_without_a_host_is_400(served: Served) -> None:
    assert (await refused_and_closed(served, b"GET /jobs HTTP/1.1\r\nX-API-Key: k\r\n\r\n")).status == 400


@pytest.mark.shows("B20")
async def test_two_hundred_headers_are_as_good_as_a_few(served: Served) -> None:
    names = [f"X-{number}" for number in range(200)]
    request = wire("X-API-Key: k", "Connection: close", *(f"{name}: v" for name in names), method="GET")
    assert (await served.raw(request)).status == 200
    assert set(names) <= set(served.functions.last()["headers"])


@pytest.mark.shows("B20")
@pytest.mark.parametrize("count", [1500, 3000, 20_000])
async def test_a_block_of_many_small_headers_is_431(served: Served, count: int) -> None:
    lines = [f"A{number}: v" for number in range(count)]
    assert sum(map(len, lines)) > MAX_HEADER_BYTES
    assert (await refused_and_closed(served, wire(*lines, "Connection: close", method="GET"))).status == 431


@pytest.mark.shows("B22")
@pytest.mark.parametrize(
    "line", ["GET /jobs", "GET /jobs HTTP/0.9", "GET /jobs HTTP/3.7", "GET /jobs HTTP/1.x"]
)
async def test_another_protocol_is_400(served: Served, line: str) -> None:
    request = f"{line}\r\nHost: a\r\nX-API-Key: k\r\n\r\n".encode()
    assert (await refused_and_closed(served, request)).status == 400


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
async def test_a_handshake_of_tls_or_http2_is_400(served: Served, request_: bytes) -> None:
    assert (await refused_and_closed(served, request_)).status == 400


@pytest.mark.shows("B22")
@pytest.mark.parametrize("method", ["FLURB", "A" * 5000, "GE(T", "get", "GET\t"])
async def test_an_absurd_method_is_400(served: Served, method: str) -> None:
    answer = await refused_and_closed(served, wire("X-API-Key: k", method=method))
    assert answer.status == 400


@pytest.mark.parametrize(
    ("method", "target"),
    [("TRACE", "/jobs"), ("CONNECT", "a:443"), ("HEAD", "/jobs"), ("OPTIONS", "*"), ("PATCH", "/jobs")],
)
async def test_a_method_that_no_route_has_is_refused_before_the_authorizer(
    served: Served, method: str, target: str
) -> None:
    request = wire("X-API-Key: k", "Connection: close", method=method, target=target)
    answer = await refused_and_closed(served, request)
    assert answer.status == 403
    assert answer.body in {b"", b'{"message":"Missing Authentication Token"}'}, "nothing of the request"


@pytest.mark.shows("B23")
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("//jobs", 403),
        ("/JOBS", 403),
        ("/%6aobs", 403),
        ("/jobs;x=1", 403),
        ("/jobs/../jobs", 403),
        ("/./jobs", 403),
        ("/jobs/7/../..", 403),
        ("/jobs\\7", 403),
        ("/v1//jobs", 403),
        ("/" + "a" * 8000, 403),
        ("/jobs/" + "a" * 9000, 414),
        ("jobs", 400),
        ("?", 400),
        ("/jobs/a b", 400),
        ("http://[bad/jobs", 400),
        ("http://a:99999/jobs", 400),
    ],
)
async def test_a_path_that_only_resembles_a_route_is_none(served: Served, target: str, status: int) -> None:
    request = wire("X-API-Key: k", "Connection: close", method="GET", target=target)
    assert (await refused_and_closed(served, request)).status == status


@pytest.mark.shows("B23")
@pytest.mark.parametrize(
    "target",
    [
        "/jobs/",
        "/jobs/%2e%2e/",
        "/jobs/%00",
        "/jobs/%ff",
        "/jobs/%zz",
        "/jobs/%0d%0aX:1",
        "/jobs/..",
        "/v1/jobs",
    ],
)
async def test_a_path_that_finds_a_route_finds_its_authorizer_too(served: Served, target: str) -> None:
    refused = await served.raw(wire("Connection: close", method="GET", target=target))
    assert (refused.status, len(served.functions.events)) == (401, 0)
    request = wire("X-API-Key: k", "Connection: close", method="GET", target=target)
    answer = await served.raw(request)
    assert answer.status == 200
    assert served.functions.calls == {"Authorize": 1, "Echo": 1}
    # Nothing was decoded or normalised.
    assert answer.json()["path"] == target.removeprefix("/v1")


async def test_a_wish_for_another_protocol_is_not_heard(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(wire("Connection: Upgrade", "Upgrade: websocket", method="GET", target="/open"))
    writer.write(wire("Connection: close", method="GET", target="/lost"))
    async with asyncio.timeout(3):
        answered = await reader.read()
    writer.close()
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert answered.count(b"HTTP/1.1 403 ") == 1
    assert served.functions.calls == {"Echo": 1}
