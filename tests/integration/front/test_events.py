from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from local.front.server import FrontOptions
from tests.integration.front.harness import (
    ACCOUNT,
    KEY,
    REGION,
    ServeFront,
    key_authorizer,
    policy,
    request_bytes,
    route,
)

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TRACE = "Root=1-65a1b2c3-0123456789abcdef01234567"
WALL = FrontOptions(wall_clock=lambda: 1_700_000_000.25)
NULLS = (
    *("accessKey", "accountId", "caller", "principalOrgId", "user", "userArn"),
    *("cognitoAuthenticationProvider", "cognitoAuthenticationType"),
    *("cognitoIdentityId", "cognitoIdentityPoolId"),
)


def context_of(event: dict[str, Any], api_id: str) -> dict[str, Any]:
    """Return the whole expected requestContext, with the ids as they came."""
    came = event["requestContext"]
    assert UUID.fullmatch(came["requestId"])
    assert len(base64.b64decode(came["extendedRequestId"])) == 11
    return {
        "accountId": ACCOUNT,
        "apiId": api_id,
        "deploymentId": came["deploymentId"],
        "domainName": "api.example.test",
        "domainPrefix": "api",
        "extendedRequestId": came["extendedRequestId"],
        "httpMethod": "POST",
        "identity": {**dict.fromkeys(NULLS), "sourceIp": "127.0.0.1", "userAgent": "tester/1"},
        "path": "/v1/jobs/a%20b",
        "protocol": "HTTP/1.1",
        "requestId": came["requestId"],
        "requestTime": "14/Nov/2023:22:13:20 +0000",
        "requestTimeEpoch": 1_700_000_000_250,
        "resourceId": came["resourceId"],
        "resourcePath": "/jobs/{job_id}",
        "stage": "v1",
    }


def multi_headers(port: int) -> dict[str, list[str]]:
    return {
        "Host": ["api.example.test"],
        "User-Agent": ["tester/1"],
        "X-Tag": ["one", "two"],
        "X-Amzn-Trace-Id": [TRACE],
        "Content-Type": ["text/plain"],
        "X-Forwarded-For": ["10.0.0.9, 127.0.0.1"],
        "X-Forwarded-Port": [str(port)],
        "X-Forwarded-Proto": ["http"],
    }


REQUEST = request_bytes(
    "/jobs/a%20b?x=1&x=2&name=caf%C3%A9+au%20lait&empty=&flag;semi=3#no",
    *("User-Agent: tester/1", "X-Tag: one", "x-tag: two", f"X-Amzn-Trace-Id: {TRACE}"),
    *("Content-Type: text/plain", "Content-Length: 6", "TE: trailers", "X-Forwarded-For: 10.0.0.9"),
    method="POST",
    body="grün!".encode(),
)
QUERY = {
    "x": ["1", "2"],
    "name": ["café au lait"],
    "empty": [""],
    "flag": [""],
    "semi": ["3"],
}


def last(multi: dict[str, list[str]]) -> dict[str, str]:
    return {name: values[-1] for name, values in multi.items()}


async def test_the_proxy_event_is_exactly_version_one(serve: ServeFront) -> None:
    served = await serve(route("POST", "/jobs/{job_id}"), options=WALL)
    assert (await served.raw(REQUEST)).status == 200
    event = served.functions.last()
    multi = multi_headers(served.port)
    assert event == {
        "resource": "/jobs/{job_id}",
        "path": "/jobs/a%20b",
        "httpMethod": "POST",
        "headers": last(multi),
        "multiValueHeaders": multi,
        "queryStringParameters": last(QUERY),
        "multiValueQueryStringParameters": QUERY,
        "pathParameters": {"job_id": "a%20b"},
        "stageVariables": None,
        "requestContext": context_of(event, served.front.api_id),
        "body": "grün!",
        "isBase64Encoded": False,
    }


async def test_the_authorizer_event_has_empty_objects_and_no_body(serve: ServeFront) -> None:
    served = await serve(
        route("POST", "/jobs/{job_id}", authorizer="Key"),
        authorizers=[key_authorizer(300, "X-Tag")],
        options=WALL,
        Authorize=lambda event: policy(context={"tier": "gold"}),
    )
    assert (await served.raw(REQUEST)).status == 200
    event = served.functions.last("Authorize")
    multi = multi_headers(served.port)
    prefix = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{served.front.api_id}"
    assert event == {
        "type": "REQUEST",
        "methodArn": f"{prefix}/v1/POST/jobs/a%20b",
        "resource": "/jobs/{job_id}",
        "path": "/jobs/a%20b",
        "httpMethod": "POST",
        "headers": last(multi),
        "multiValueHeaders": multi,
        "queryStringParameters": last(QUERY),
        "multiValueQueryStringParameters": QUERY,
        "pathParameters": {"job_id": "a%20b"},
        "stageVariables": {},
        "requestContext": context_of(event, served.front.api_id),
    }
    proxy = served.functions.last()
    granted = proxy["requestContext"].pop("authorizer")
    assert proxy["requestContext"] == event["requestContext"], "one request, one set of ids"
    assert isinstance(granted.pop("integrationLatency"), int)
    assert granted == {"principalId": "someone", "tier": "gold"}


async def test_what_is_absent_is_null_in_the_proxy_event(serve: ServeFront) -> None:
    served = await serve(route("GET", "/jobs"))
    event = (await served.raw(request_bytes("/jobs"))).json()
    absent = ("queryStringParameters", "multiValueQueryStringParameters", "pathParameters", "body")
    assert [event[name] for name in absent] == [None] * 4
    assert event["isBase64Encoded"] is False
    assert event["requestContext"]["identity"]["userAgent"] is None
    assert "authorizer" not in event["requestContext"]


async def test_what_is_absent_is_an_empty_object_in_the_authorizer_event(serve: ServeFront) -> None:
    served = await serve(
        route("GET", "/jobs", authorizer="Key"),
        authorizers=[key_authorizer()],
        Authorize=lambda event: policy(),
    )
    assert (await served.client.get("/jobs", headers={"X-API-Key": KEY})).status_code == 200
    event = served.functions.last("Authorize")
    absent = ("queryStringParameters", "multiValueQueryStringParameters", "pathParameters", "stageVariables")
    assert [event[name] for name in absent] == [{}] * 4


@pytest.mark.parametrize("decode", [False, True])
async def test_path_parameters_are_decoded_only_when_asked(serve: ServeFront, decode: bool) -> None:
    options = FrontOptions(decode_path_parameters=True) if decode else None
    served = await serve(route("GET", "/{first}/{rest+}"), options=options)
    event = (await served.raw(request_bytes("/caf%C3%A9+1/a%2Fb/c%20d"))).json()
    raw, decoded = ("caf%C3%A9+1", "a%2Fb/c%20d"), ("café+1", "a/b/c d")
    assert event["pathParameters"] == dict(zip(("first", "rest"), decoded if decode else raw, strict=True))
    assert event["path"] == "/caf%C3%A9+1/a%2Fb/c%20d"


@pytest.mark.parametrize(
    ("content_type", "body", "is_base64"),
    [
        ("application/json", b'{"a": "\xc3\xa9"}', False),
        ("application/octet-stream", b"\x00\xff\xfe", True),
        ("image/png", b"text after all", True),
        ("IMAGE/PNG; q=1", b"text after all", True),
    ],
)
async def test_a_body_is_base64_for_binary_media_types_or_when_it_is_no_text(
    serve: ServeFront, content_type: str, body: bytes, is_base64: bool
) -> None:
    served = await serve(route("POST", "/"), options=FrontOptions(binary_media_types=("image/png",)))
    await served.client.post("/", content=body, headers={"Content-Type": content_type})
    event = served.functions.last()
    expected = base64.b64encode(body).decode() if is_base64 else body.decode()
    assert (event["body"], event["isBase64Encoded"]) == (expected, is_base64)


async def test_a_compressed_body_stays_compressed(serve: ServeFront) -> None:
    served = await serve(route("POST", "/"))
    body = b"\x1f\x8b\x08 not really gzip"
    await served.client.post("/", content=body, headers={"Content-Encoding": "gzip"})
    assert base64.b64decode(served.functions.last()["body"]) == body


async def test_a_chunked_body_arrives_whole_and_its_framing_does_not(serve: ServeFront) -> None:
    served = await serve(route("POST", "/"))
    chunks = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    await served.raw(request_bytes("/", "Transfer-Encoding: chunked", method="POST", body=chunks))
    event = served.functions.last()
    assert event["body"] == "abcde"
    assert not {"Transfer-Encoding", "Connection", "Content-Length"} & event["headers"].keys()


async def test_a_new_trace_starts_when_none_was_sent(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"), options=WALL)
    answer = await served.client.get("/", headers={"X-Amzn-Trace-Id": "nonsense"})
    trace = answer.json()["headers"]["X-Amzn-Trace-Id"]
    assert re.fullmatch(r"Root=1-6553f100-[0-9a-f]{24}", trace)
    assert answer.headers["X-Amzn-Trace-Id"] == trace


async def test_the_answer_carries_the_ids_of_the_event(serve: ServeFront) -> None:
    served = await serve(route("GET", "/"))
    answers = [await served.client.get("/") for _ in range(2)]
    for answer in answers:
        context = json.loads(answer.text)["requestContext"]
        assert answer.headers["x-amzn-RequestId"] == context["requestId"]
        assert answer.headers["x-amz-apigw-id"] == context["extendedRequestId"]
    assert len({answer.headers["x-amzn-RequestId"] for answer in answers}) == 2
