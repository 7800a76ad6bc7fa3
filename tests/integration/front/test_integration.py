from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from local.template.spec import InvokeResult, Throttled
from tests.integration.front.harness import Handler, ServeFront, error_result, request_bytes, route

ROUTE = route("GET", "/", "F")
INTERNAL = {"message": "Internal server error"}


async def answer_of(serve: ServeFront, handler: Handler) -> httpx.Response:
    served = await serve(ROUTE, F=handler)
    return await served.client.get("/")


def raising(error: Exception) -> Handler:
    def handler(event: dict[str, Any]) -> object:
        raise error

    return handler


async def test_a_reply_is_passed_on(serve: ServeFront) -> None:
    reply = {
        "statusCode": 201,
        "headers": {"Content-Type": "text/plain", "X-N": 7, "X-B": True},
        "body": "grün",
    }
    answer = await answer_of(serve, lambda event: reply)
    assert (answer.status_code, answer.content) == (201, "grün".encode())
    assert [answer.headers[name] for name in ("Content-Type", "X-N", "X-B")] == ["text/plain", "7", "true"]


@pytest.mark.parametrize("status", [200, "200", 204, 304, 404, 500, 599], ids=repr)
async def test_any_http_status_may_be_answered(serve: ServeFront, status: int | str) -> None:
    answer = await answer_of(serve, lambda event: {"statusCode": status})
    assert answer.status_code == int(status)
    assert "x-amzn-ErrorType" not in answer.headers


async def test_a_reply_without_a_type_is_json(serve: ServeFront) -> None:
    answer = await answer_of(serve, lambda event: {"statusCode": 200, "body": "{}"})
    assert answer.headers["Content-Type"] == "application/json"


async def test_a_base64_reply_is_decoded(serve: ServeFront) -> None:
    body = bytes(range(256))
    reply = {"statusCode": 200, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    assert (await answer_of(serve, lambda event: reply)).content == body


async def test_multi_value_headers_are_sent_each_and_merged_with_the_single_ones(serve: ServeFront) -> None:
    reply = {
        "statusCode": 200,
        "headers": {"x-tag": "b", "X-One": "1", "X-TAG": "c"},
        "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"], "X-Tag": ["a", "b"]},
    }
    answer = await answer_of(serve, lambda event: reply)
    assert answer.headers.get_list("Set-Cookie") == ["a=1", "b=2"]
    assert answer.headers.get_list("X-Tag") == ["a", "b", "c"]
    assert answer.headers.get_list("X-One") == ["1"]


async def test_headers_that_the_gateway_keeps_for_itself_are_renamed_or_dropped(serve: ServeFront) -> None:
    renamed = ["Authorization", "Connection", "Content-Length", "Content-MD5", "Date", "Host", "Max-Forwards"]
    renamed += ["Server", "WWW-Authenticate"]
    dropped = ("TE", "Trailer", "Transfer-Encoding", "Upgrade", "Keep-Alive", "Proxy-Authenticate")
    reply = {"statusCode": 200, "headers": dict.fromkeys((*renamed, *dropped), "99"), "body": "four"}
    served = await serve(ROUTE, F=lambda event: reply)
    answer = await served.raw(request_bytes("/"))
    headers = dict(answer.headers)
    assert (answer.status, answer.body) == (200, b"four")
    assert [headers.get(f"x-amzn-remapped-{name.lower()}") for name in renamed] == ["99"] * len(renamed)
    assert not [name for name, value in answer.headers if value == "99" and "remapped" not in name]
    assert headers["content-length"] == "4"


async def test_the_gateways_own_headers_win(serve: ServeFront) -> None:
    reply = {"statusCode": 200, "headers": {"x-amzn-RequestId": "forged", "x-amz-apigw-id": "forged"}}
    answer = await answer_of(serve, lambda event: reply)
    assert answer.headers.get_list("x-amzn-RequestId") != ["forged"]
    assert "forged" not in answer.headers.values()


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "text",
        [],
        {},
        {"body": "no status"},
        {"statusCode": "many"},
        {"statusCode": 99},
        {"statusCode": 600},
        {"statusCode": True},
        {"statusCode": 200.5},
        {"statusCode": 200, "body": {"an": "object"}},
        {"statusCode": 200, "body": "!!", "isBase64Encoded": True},
        {"statusCode": 200, "isBase64Encoded": "true", "body": ""},
        {"statusCode": 200, "headers": []},
        {"statusCode": 200, "headers": ["a"]},
        {"statusCode": 200, "headers": {"X": ["a"]}},
        {"statusCode": 200, "headers": {"X": "a\r\nY: b"}},
        {"statusCode": 200, "headers": {"bad name": "a"}},
        {"statusCode": 200, "multiValueHeaders": {"X": "a"}},
        {"statusCode": 200, "cookies": ["a=1"]},
        InvokeResult(b"not JSON"),
        InvokeResult(b"\xff"),
        InvokeResult(b""),
    ],
)
async def test_a_malformed_reply_is_502(serve: ServeFront, reply: object) -> None:
    answer = await answer_of(serve, lambda event: reply)
    assert (answer.status_code, answer.json()) == (502, INTERNAL)
    assert answer.headers["x-amzn-ErrorType"] == "InternalServerErrorException"


async def test_a_function_error_is_502_and_says_nothing(serve: ServeFront) -> None:
    answer = await answer_of(serve, lambda event: error_result("secret detail"))
    assert (answer.status_code, answer.json()) == (502, INTERNAL)
    assert "secret detail" not in str(answer.headers)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (Throttled(), 500, "Internal server error"),
        (KeyError("F"), 500, "Internal server error"),
        (OSError("gone"), 504, "Network error communicating with endpoint"),
        (RuntimeError("stopped"), 504, "Network error communicating with endpoint"),
    ],
)
async def test_a_function_that_cannot_be_called_is_a_server_error(
    serve: ServeFront, error: Exception, status: int, message: str
) -> None:
    answer = await answer_of(serve, raising(error))
    assert (answer.status_code, answer.json()) == (status, {"message": message})


async def test_whatever_breaks_the_client_gets_an_answer(
    serve: ServeFront, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await answer_of(serve, raising(ZeroDivisionError("unforeseen")))
    assert (answer.status_code, answer.json()) == (500, INTERNAL)
    assert answer.headers["x-amzn-RequestId"] in caplog.text


async def test_past_the_time_limit_the_client_gets_504_while_the_function_runs_on(serve: ServeFront) -> None:
    go, finished = asyncio.Event(), asyncio.Event()

    async def slow(event: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        finished.set()
        return {"statusCode": 200}

    served = await serve(route("GET", "/", "Slow", timeout_ms=50), Slow=slow)
    answer = await served.client.get("/")
    assert (answer.status_code, answer.json()) == (504, {"message": "Endpoint request timed out"})
    assert not finished.is_set()
    go.set()
    await asyncio.wait_for(finished.wait(), 5)


async def test_a_failure_after_the_time_limit_is_ignored(serve: ServeFront) -> None:
    go, failed = asyncio.Event(), asyncio.Event()

    async def slow(event: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        failed.set()
        raise OSError("too late")

    served = await serve(route("GET", "/", "Slow", timeout_ms=50), route("GET", "/ok"), Slow=slow)
    assert (await served.client.get("/")).status_code == 504
    go.set()
    await asyncio.wait_for(failed.wait(), 5)
    assert (await served.client.get("/ok")).status_code == 200


async def test_stopping_ends_the_functions_that_still_run(serve: ServeFront) -> None:
    cancelled = asyncio.Event()

    async def endless(event: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    served = await serve(route("GET", "/", "Endless", timeout_ms=50), Endless=endless)
    assert (await served.client.get("/")).status_code == 504
    await asyncio.wait_for(served.front.stop(), 5)
    assert cancelled.is_set()


async def test_slow_functions_do_not_hold_up_others(serve: ServeFront) -> None:
    go = asyncio.Event()

    async def slow(event: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        return {"statusCode": 200}

    served = await serve(route("GET", "/slow", "Slow"), route("GET", "/fast"), Slow=slow)
    waiting = asyncio.create_task(served.client.get("/slow"))
    assert (await served.client.get("/fast")).status_code == 200
    assert not waiting.done()
    go.set()
    assert (await waiting).status_code == 200
