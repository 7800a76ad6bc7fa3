from __future__ import annotations

import asyncio

import httpx
import pytest

from local.front.bodies import MAX_BODY_BYTES
from local.front.connection import MAX_HEADER_BYTES
from local.front.server import FrontOptions
from local.template.spec import Throttle
from tests.integration.front.harness import Clock, ServeFront, key_authorizer, policy, request_bytes, route

POST = route("POST", "/", "Sink")
TOO_LONG = {"message": "Request Too Long"}


def sink(event: object) -> object:
    return {"statusCode": 200, "body": "{}"}


@pytest.mark.shows("B16")
async def test_more_than_ten_megabytes_announced_is_413_before_any_is_read(serve: ServeFront) -> None:
    served = await serve(POST, Sink=sink, options=FrontOptions(linger_s=0.1))
    answer = await served.raw(request_bytes("/", f"Content-Length: {MAX_BODY_BYTES + 1}", method="POST"))
    assert (answer.status, answer.json()) == (413, TOO_LONG)
    assert ("x-amzn-errortype", "RequestTooLargeException") in answer.headers
    assert not served.functions.events


async def test_an_announced_oversize_body_asks_no_authorizer(serve: ServeFront) -> None:
    served = await serve(
        route("POST", "/", "Sink", authorizer="Key"),
        Sink=sink,
        Authorize=lambda event: policy(),
        authorizers=[key_authorizer()],
        options=FrontOptions(linger_s=0.1),
    )
    headers = ("X-API-Key: k", f"Content-Length: {MAX_BODY_BYTES + 1}")
    assert (await served.raw(request_bytes("/", *headers, method="POST"))).status == 413
    assert not served.functions.events


@pytest.mark.shows("B16")
async def test_more_than_ten_megabytes_in_chunks_is_413(serve: ServeFront) -> None:
    served = await serve(POST, Sink=sink)
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    body = chunk * 10 + b"1\r\nx\r\n0\r\n\r\n"
    answer = await served.raw(
        request_bytes("/", "Transfer-Encoding: chunked", method="POST", body=body), deadline_s=10
    )
    assert (answer.status, answer.json()) == (413, TOO_LONG)
    assert not served.functions.events


async def test_an_event_of_more_than_six_megabytes_is_413(serve: ServeFront) -> None:
    served = await serve(POST, Sink=sink)
    mebibyte = 1024 * 1024
    for size, status in ((6 * mebibyte - 4096, 200), (6 * mebibyte, 413), (MAX_BODY_BYTES, 413)):
        answer = await served.client.post("/", content=b"x" * size)
        assert answer.status_code == status, size
    assert (answer.json(), served.functions.calls) == (TOO_LONG, {"Sink": 1})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ((b"\xff" * 4_600_000), 200),  # base64 makes four bytes of three
        ((b"\xff" * 4_800_000), 413),
        (("é" * 3_000_000).encode(), 200),  # as UTF-8, not as escapes
    ],
)
async def test_what_counts_is_the_event_as_it_is_sent(serve: ServeFront, body: bytes, status: int) -> None:
    served = await serve(POST, Sink=sink)
    assert (await served.client.post("/", content=body)).status_code == status


@pytest.mark.shows("B20")
async def test_a_long_header_block_is_431(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"))
    lines = [f"X-{n}: {'v' * 980}" for n in range(10)]
    assert (await served.raw(request_bytes("/", *lines))).status == 200
    answer = await served.raw(request_bytes("/", *lines, "X-Last: " + "v" * 980))
    assert (answer.status, answer.json()) == (431, {"message": "Request Header Fields Too Large"})


async def test_one_long_header_is_431(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"))
    answer = await served.raw(request_bytes("/", "X-Long: " + "v" * (MAX_HEADER_BYTES + 1)))
    assert answer.status == 431
    assert ("content-type", "application/json") in answer.headers
    assert not served.functions.events


async def test_a_long_url_is_414(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"))
    assert (await served.raw(request_bytes("/?q=" + "x" * 7_000))).status == 200
    assert (await served.raw(request_bytes("/?q=" + "x" * 9_000))).status == 414


@pytest.mark.shows("B17")
async def test_a_body_that_does_not_come_is_408(serve: ServeFront) -> None:
    served = await serve(POST, Sink=sink, options=FrontOptions(body_timeout_s=0.1, linger_s=0.1))
    answer = await served.raw(request_bytes("/", "Content-Length: 10", method="POST", body=b"half"))
    assert (answer.status, answer.json()) == (408, {"message": "Request Timeout"})
    assert not served.functions.events


async def test_a_client_that_leaves_in_its_body_calls_nothing(serve: ServeFront) -> None:
    served = await serve(POST, route("GET", "/ok"), Sink=sink)
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request_bytes("/", "Content-Length: 10", method="POST", body=b"half"))
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await served.client.get("/ok")).status_code == 200
    assert served.functions.calls == {"Echo": 1}


async def test_a_client_that_expects_100_continue_gets_it(serve: ServeFront) -> None:
    served = await serve(route("POST", "/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    headers = ("Expect: 100-continue", "Content-Length: 4")
    writer.write(request_bytes("/", *headers, method="POST"))
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    event = served.functions.last()
    assert event["body"] == "body"
    assert "Expect" not in event["headers"]


async def test_a_connection_is_kept_for_the_next_request_even_after_a_refusal(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    statuses = []
    for target in ("/", "/lost", "/"):
        writer.write(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        statuses.append(head.split(b" ")[1])
    writer.close()
    assert statuses == [b"200", b"403", b"200"]


async def test_a_connection_whose_body_was_refused_is_closed(serve: ServeFront) -> None:
    served = await serve(POST, Sink=sink, options=FrontOptions(linger_s=0.1))
    length = MAX_BODY_BYTES + 1
    request = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode()
    answer = await served.raw(request)
    assert answer.status == 413
    assert dict(answer.headers)["connection"] == "close"


async def test_a_method_is_throttled_by_its_own_bucket(serve: ServeFront) -> None:
    clock = Clock()
    limits = {"POST /": Throttle(rate=1, burst=2), "*": Throttle(rate=1, burst=1)}
    options = FrontOptions(throttles=limits, monotonic=clock)
    served = await serve(POST, route("GET", "/a"), route("GET", "/b"), Sink=sink, options=options)
    assert [(await served.client.post("/")).status_code for _ in range(3)] == [200, 200, 429]
    assert [(await served.client.get("/a")).status_code for _ in range(2)] == [200, 429]
    refused = await served.client.get("/a")
    assert refused.json() == {"message": "Too Many Requests"}
    assert refused.headers["x-amzn-ErrorType"] == "TooManyRequestsException"
    assert (await served.client.get("/b")).status_code == 200
    clock.now += 1.0
    assert [(await served.client.post("/")).status_code for _ in range(2)] == [200, 429]


async def test_a_stopped_front_refuses_connections_and_may_be_stopped_again(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"), options=FrontOptions(stop_grace_s=0.1))
    assert (await served.client.get("/")).status_code == 200
    await served.front.stop()
    await served.front.stop()
    async with httpx.AsyncClient() as fresh:
        with pytest.raises(httpx.ConnectError):
            await fresh.get(f"http://127.0.0.1:{served.port}/")
