"""The error envelope and the strict body, through the whole Lambda handler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.errors import CallerError, TransientError
from indexmill.platform.http.app import (
    SECURITY_HEADERS,
    Caller,
    RequestId,
    create_app,
    lambda_handler,
)
from indexmill.platform.http.guard import json_route, scoped
from indexmill.platform.observability import Observability
from indexmill.platform.settings import HttpSettings
from tests.support.events import FakeContext, api_event, caller_claims

LIMIT = 2_000


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=20)
    count: int = Field(default=1, ge=1, le=100)


@pytest.fixture(autouse=True)
def _event_loop() -> Iterator[None]:
    """Give the main thread a loop, as Lambda's has; other tests leave it without one."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@cache
def handler() -> Any:
    router = APIRouter(route_class=json_route(LIMIT))

    @router.post("/things", status_code=202, openapi_extra=scoped("scraper:write"))
    async def make(body: Thing, ctx: Caller, request_id: RequestId) -> dict[str, str]:
        return {"name": body.name, "caller": ctx.caller_id, "request_id": request_id}

    @router.get("/boom", openapi_extra=scoped("orchestrator:read"))
    async def boom() -> None:
        raise RuntimeError("secret detail")

    @router.get("/later", openapi_extra=scoped("orchestrator:read"))
    async def later() -> None:
        raise TransientError("database_unavailable", "Not now.", retry_after=5, hint="Wait.")

    @router.get("/large", openapi_extra=scoped("orchestrator:read"))
    async def large(character: str, count: int) -> dict[str, str]:
        return {"text": character * count}

    observability = Observability("test", level="CRITICAL")
    return lambda_handler(create_app([router], observability), observability)


def call(method: str, path: str, **event: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    event.setdefault("caller", caller_claims())
    reply = handler()(api_event(method, path, **event), FakeContext())
    return reply["statusCode"], json.loads(reply["body"]), reply["headers"]


def test_a_good_request_passes() -> None:
    status, body, headers = call("POST", "/things", body={"name": "x"})
    assert (status, body["name"], body["caller"]) == (202, "x", "0123456789abcdef")
    assert headers["x-request-id"] == body["request_id"] == "req-123"


@pytest.mark.shows("S12", "S36")
@pytest.mark.parametrize("path", ["/things", "/nowhere"])
def test_every_answer_says_that_it_is_data(path: str) -> None:
    status, _, headers = call("POST", path, body={"name": "x"})
    assert status in (202, 404)
    assert {name: headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert headers["content-type"].startswith("application/json")


def test_a_sound_request_id_of_the_caller_is_kept_and_an_odd_one_is_not() -> None:
    sound = call("POST", "/things", body={"name": "x"}, headers={"X-Request-Id": "abc-1"})
    assert sound[1]["request_id"] == sound[2]["x-request-id"] == "abc-1"
    refused = call("POST", "/things", body={}, headers={"x-REQUEST-id": "abc-2"})
    assert refused[1]["error"]["request_id"] == refused[2]["x-request-id"] == "abc-2"
    odd = call("POST", "/things", body={"name": "x"}, headers={"X-Request-Id": "a" * 65})
    assert odd[1]["request_id"] == "req-123"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        ("", 400, "malformed_json"),
        ("{", 400, "malformed_json"),
        ("{'name': 1}", 400, "malformed_json"),
        ('{"name": "x",}', 400, "malformed_json"),
        ('{"name": "x"}{}', 400, "malformed_json"),
        ('{"name": "a", "name": "b"}', 400, "malformed_json"),
        ('{"name": "x", "count": NaN}', 400, "malformed_json"),
        ('{"name": "x", "count": -Infinity}', 400, "malformed_json"),
        ('{"name": "x", "count": 1e999}', 400, "malformed_json"),
        ('{"name": "x", "count": ' + "9" * 1000 + "}", 400, "malformed_json"),
        ("[" * 1900, 400, "malformed_json"),
        (b"\xff{}", 400, "invalid_encoding"),
        ('{"name":"x"}'.encode("utf-16"), 400, "invalid_encoding"),
        (b'\xef\xbb\xbf{"name":"x"}', 400, "invalid_encoding"),
        ("null", 422, "validation_error"),
        ("1", 422, "validation_error"),
        ("[]", 422, "validation_error"),
        ('"x"', 422, "validation_error"),
        ("{}", 422, "validation_error"),
        ('{"name": "\\ud800"}', 422, "validation_error"),
        ('{"name": "a\\u0000"}', 422, "validation_error"),
        ('{"name": 5}', 422, "validation_error"),
        ('{"name": "x", "count": true}', 422, "validation_error"),
        ('{"name": "x", "count": "10"}', 422, "validation_error"),
        ('{"name": "x", "count": 10.0}', 422, "validation_error"),
        ('{"name": "x", "count": 0}', 422, "validation_error"),
        ('{"name": "x", "other": 1}', 422, "validation_error"),
        ('{"name": "' + "x" * LIMIT + '"}', 413, "payload_too_large"),
    ],
)
def test_a_bad_body_has_a_code_and_is_never_echoed(raw: str | bytes, status: int, code: str) -> None:
    got, body, _ = call("POST", "/things", raw=raw)
    assert (got, body["error"]["code"]) == (status, code)
    assert body["error"]["request_id"] == "req-123"
    assert len(json.dumps(body)) < 500


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        ({"Content-Type": "multipart/form-data"}, 415, "unsupported_media_type"),
        ({"Content-Type": ""}, 415, "unsupported_media_type"),
        ({"Content-Type": "application/json; charset=utf-16"}, 400, "invalid_encoding"),
        ({"Content-Encoding": "gzip"}, 400, "unsupported_encoding"),
    ],
)
def test_bad_headers_have_a_code(headers: dict[str, str], status: int, code: str) -> None:
    got, body, _ = call("POST", "/things", body={"name": "x"}, headers=headers)
    assert (got, body["error"]["code"]) == (status, code)


def test_the_wrong_field_is_named() -> None:
    assert call("POST", "/things", body={"name": "x", "count": 0})[1]["error"]["field"] == "body.count"


@pytest.mark.shows("S7")
def test_a_defect_is_a_neutral_500() -> None:
    status, body, _ = call("GET", "/boom")
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(body)


def test_an_outage_says_when_to_come_back() -> None:
    status, body, headers = call("GET", "/later")
    assert (status, headers["retry-after"]) == (503, "5")
    assert body["error"]["retry_after"] == 5
    assert body["error"]["hint"] == "Wait."


def test_unknown_paths_and_methods_are_alike() -> None:
    assert call("GET", "/nothing")[0] == call("GET", "/things")[0] == 404


@pytest.mark.parametrize(
    ("character", "count", "status"),
    [
        ("x", 6_291_000, 200),
        ("x", 6_291_456, 413),
        ("\u66f8", 2_097_000, 200),
        ("\u66f8", 2_100_000, 413),  # 6.3 MB in 2.1 million characters
        ("\U0001f600", 1_600_000, 413),
        ('"', 1_572_000, 200),  # two characters in the body's JSON, four bytes in that of the reply
        ('"', 1_573_000, 413),
    ],
)
def test_an_answer_too_large_for_lambda_is_an_error_of_ours(character: str, count: int, status: int) -> None:
    event = api_event("GET", "/large", caller=caller_claims())
    event["multiValueQueryStringParameters"] = {"character": [character], "count": [str(count)]}
    reply = handler()(event, FakeContext())
    assert reply["statusCode"] == status
    assert (
        len(json.dumps(reply, ensure_ascii=False).encode()) <= 6 << 20,
        reply["headers"]["x-request-id"],
    ) == (
        True,
        "req-123",
    )
    if status == 413:
        assert json.loads(reply["body"])["error"]["code"] == "response_too_large"


def test_without_an_authorizers_context_a_request_is_refused() -> None:
    status, body, _ = call("POST", "/things", body={"name": "x"}, caller={})
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.shows("B24")
def test_two_api_keys_are_refused_even_on_a_cache_hit() -> None:
    event = api_event("POST", "/things", {"name": "x"}, caller=caller_claims())
    event["multiValueHeaders"]["X-API-Key"] = ["a", "b"]
    reply = handler()(event, FakeContext())
    assert (reply["statusCode"], json.loads(reply["body"])["error"]["code"]) == (401, "invalid_api_key")


@cache
def handler_for(*origins: str) -> Any:
    """Return a handler whose answers pages of `origins` may read."""
    router = APIRouter(route_class=json_route(LIMIT))

    @router.get("/boom", openapi_extra=scoped("orchestrator:read"))
    async def boom() -> None:
        raise RuntimeError("secret detail")

    @router.get("/fine", openapi_extra=scoped("orchestrator:read"))
    async def fine() -> str:
        return "fine"

    @router.get("/large", openapi_extra=scoped("orchestrator:read"))
    async def large() -> str:
        return "x" * 7_000_000

    observability = Observability("test", level="CRITICAL")
    return lambda_handler(
        create_app([router], observability),
        observability,
        HttpSettings(allowed_origins=",".join(origins)),
    )


def cors_headers(method: str, path: str, origins: tuple[str, ...], origin: str | None) -> dict[str, str]:
    """Return the headers of the answer to a page of `origin` that are about origins."""
    event = api_event(method, path, headers={} if origin is None else {"Origin": origin})
    headers = handler_for(*origins)(event, FakeContext())["headers"]
    return {
        name: value for name, value in headers.items() if name.startswith("access-control") or name == "vary"
    }


APP, ADMIN = "https://app.example.com", "https://admin.example.com"


@pytest.mark.shows("S12")
@pytest.mark.parametrize("path", ["/fine", "/boom", "/nowhere", "/large"])
@pytest.mark.parametrize("origin", [APP, ADMIN])
def test_a_page_of_an_allowed_origin_can_read_every_answer(path: str, origin: str) -> None:
    found = cors_headers("GET", path, (APP, ADMIN), origin)
    assert (found["access-control-allow-origin"], found["vary"]) == (origin, "Origin")
    exposed = found["access-control-expose-headers"].split(",")
    assert {"x-request-id", "retry-after", "etag", "x-ratelimit-remaining"} <= {*exposed}
    assert "access-control-allow-credentials" not in found


@pytest.mark.shows("S12")
@pytest.mark.parametrize(
    "origin", [None, "", "null", "https://evil.example", f"{APP}.evil.example", APP.upper()]
)
def test_no_other_page_can_and_caches_keep_them_apart(origin: str | None) -> None:
    assert cors_headers("GET", "/fine", (APP, ADMIN), origin) == {"vary": "Origin"}


@pytest.mark.shows("S12")
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:5173", True),
        ("http://localhost:80", True),
        ("http://localhost", False),
        ("https://localhost:5173", False),
        ("http://localhost.evil.example:5173", False),
        ("http://localhost:5173.evil.example", False),
        ("http://127.0.0.1:5173", False),
    ],
)
def test_an_origin_may_be_allowed_at_any_port(origin: str, allowed: bool) -> None:
    found = cors_headers("GET", "/fine", (APP, "http://localhost:*"), origin)
    assert found.get("access-control-allow-origin") == (origin if allowed else None)


@pytest.mark.shows("S12")
def test_without_origins_no_answer_is_about_them() -> None:
    assert cors_headers("GET", "/fine", (), APP) == {}


@pytest.mark.shows("R106")
def test_a_request_that_fails_is_a_line_with_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = refusal(capsys, RuntimeError("cannot read https://site.example/?token=secret"))
    (line,) = [each for each in found if each.get("message") == "request.failed"]
    assert (line["request_id"], line["code"]) == ("abc-1", "internal_error")
    assert "https://site.example/" in line["exception"]
    assert "secret" not in str(line)


@pytest.mark.shows("R099")
@pytest.mark.parametrize("code", ["rate_limited", "queue_saturated", "quota_exceeded"])
def test_each_429_is_a_line_with_its_code_and_a_quota_is_counted(
    capsys: pytest.CaptureFixture[str], code: str
) -> None:
    status, found = refusal(capsys, CallerError(code, f"{code}: not now.", retry_after=5))
    assert status == 429
    (line,) = [each for each in found if each.get("message") == "request.refused"]
    who = {"code": code, "request_id": "abc-1", "caller_id": "0123456789abcdef"}
    assert line.items() >= {**who, "method": "GET", "resource": "/fails"}.items()
    counted = [each for each in found if "quota_exceeded_total" in each]
    values = [(each["quota_exceeded_total"], each["tier"]) for each in counted]
    assert values == ([([1.0], "free")] if code == "quota_exceeded" else [])


def test_other_refusals_are_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = refusal(capsys, CallerError("not_found", "There is nothing."))
    assert (status, found) == (404, [])


def refusal(capsys: pytest.CaptureFixture[str], error: Exception) -> tuple[int, list[dict[str, Any]]]:
    """Return the status of a request that raises, and the lines that it wrote."""
    router = APIRouter()

    @router.get("/fails")
    async def fails() -> None:
        raise error

    # A logger keeps the stream of its first use, so each has a name of its own.
    observability = Observability(f"refusals-{error}")
    handle = lambda_handler(create_app([router], observability), observability)
    event = api_event("GET", "/fails", headers={"X-Request-Id": "abc-1"}, caller=caller_claims())
    status = handle(event, FakeContext())["statusCode"]
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]
