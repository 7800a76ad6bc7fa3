"""Whatever is wrong with a request: one envelope with a code of the list, and nothing breaks."""

from __future__ import annotations

import gzip
import json
import socket
import uuid
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import openapi
from tests.support.refusals import BODIES, JOB_ID, MARK, MAY_BE_EMPTY, MAY_HAVE_NO_BODY, URL, post, refused
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

KIB = 1024
GATEWAY_LIMIT = 10 * KIB * KIB
LIMITS = dict.fromkeys(BODIES, 256 * KIB) | {
    "/chunking/chunk": 4 * KIB * KIB,
    "/chunking/enqueue": 4 * KIB * KIB,
    "/embedding/embed": KIB * KIB,
    "/embedding/enqueue": KIB * KIB,
}
EVERY = pytest.mark.parametrize("path", BODIES)


@pytest.fixture(scope="module")
def caller(ops: httpx.Client) -> httpx.Client:
    """Return an internal caller: no other is allowed more, so every check is reached."""
    return ops


def test_every_endpoint_with_a_body_is_here() -> None:
    paths = openapi.document()["paths"].items()
    posts = {path for path, operations in paths if "requestBody" in operations.get("post", {})}
    assert posts == BODIES.keys()


def with_member(path: str, member: str) -> bytes:
    """Return the endpoint's valid body with one more member, verbatim."""
    return f"{json.dumps(BODIES[path])[:-1]}, {member}}}".encode()


MALFORMED = {
    "empty": b"",
    "cut": b'{"url": "' + MARK.encode(),
    "trailing comma": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "two documents": b"{} {}",
    "deep": b"[" * 100_000,
}


@pytest.mark.shows("B1", "B2", "B6")
@EVERY
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_json_is_400(caller: httpx.Client, path: str, body: bytes) -> None:
    answer = post(caller, path, content=body, headers={"Content-Type": "application/json"})
    if not body and path in MAY_HAVE_NO_BODY:
        refused(answer, 404, "not_found", path)
    else:
        refused(answer, 400, "malformed_json", path)


MEMBERS = {
    "NaN": ('"x": NaN', 400, "malformed_json"),
    "Infinity": ('"x": -Infinity', 400, "malformed_json"),
    "5000 digits": (f'"x": {"9" * 5000}', 400, "malformed_json"),
    "twice": ('"x": 1, "x": 2', 400, "malformed_json"),
    "unknown": (f'"unknown": "{MARK}"', 422, "validation_error"),
    "lone surrogate": (f'"x": "{MARK}\\ud800"', 422, "validation_error"),
    "NUL": (f'"x": "{MARK}\\u0000"', 422, "validation_error"),
}


@pytest.mark.shows("B7", "B8", "B9", "B11", "B12", "B13")
@EVERY
@pytest.mark.parametrize(("member", "status", "code"), MEMBERS.values(), ids=MEMBERS.keys())
def test_a_member_that_does_not_belong(
    caller: httpx.Client, path: str, member: str, status: int, code: str
) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    refused(post(caller, path, content=with_member(path, member), headers=headers), status, code, path)


@pytest.mark.shows("B3")
@EVERY
@pytest.mark.parametrize("body", ["null", "1", "[]", f'"{MARK}"', "true", "{}"])
def test_json_that_is_no_such_object_is_422(caller: httpx.Client, path: str, body: str) -> None:
    if body == "{}" and path in MAY_BE_EMPTY:
        return
    answer = post(caller, path, content=body, headers={"Content-Type": "application/json"})
    if body == "null" and path in MAY_HAVE_NO_BODY:
        refused(answer, 404, "not_found", path)
    else:
        refused(answer, 422, "validation_error", path)


ENCODINGS = {
    "no UTF-8": (b'{"x": "\xff"}', "application/json"),
    "UTF-16": ('{"x": 1}'.encode("utf-16"), "application/json"),
    "BOM": (b"\xef\xbb\xbf{}", "application/json"),
    "told to be UTF-16": (b"{}", "application/json; charset=utf-16"),
}


@pytest.mark.shows("B4", "B5")
@EVERY
@pytest.mark.parametrize(("body", "content_type"), ENCODINGS.values(), ids=ENCODINGS.keys())
def test_another_encoding_is_400(caller: httpx.Client, path: str, body: bytes, content_type: str) -> None:
    answer = post(caller, path, content=body, headers={"Content-Type": content_type})
    refused(answer, 400, "invalid_encoding", path)


@pytest.mark.shows("B18")
@EVERY
@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/xml", "multipart/form-data; boundary=x"]
)
def test_another_content_type_is_415(caller: httpx.Client, path: str, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    answer = post(caller, path, content=json.dumps(BODIES[path]).encode(), headers=headers)
    refused(answer, 415, "unsupported_media_type", path)


@pytest.mark.shows("B19")
@EVERY
@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["packed", "a lie"])
def test_a_packed_body_is_400(caller: httpx.Client, path: str, pack: Any) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = post(caller, path, content=pack(json.dumps(BODIES[path]).encode()), headers=headers)
    refused(answer, 400, "unsupported_encoding", path)


@pytest.mark.shows("B15")
@pytest.mark.shows("S8")
@EVERY
def test_a_body_above_the_endpoints_limit_is_413(caller: httpx.Client, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps({"x": 1}).encode()
    largest = post(caller, path, content=body.ljust(LIMITS[path]), headers=headers)
    refused(largest, 422, "validation_error", path)
    refused(
        post(caller, path, content=body.ljust(LIMITS[path] + 1), headers=headers),
        413,
        "payload_too_large",
        path,
    )


@pytest.mark.shows("B16")
@pytest.mark.shows("S8")
@pytest.mark.parametrize("size", [7 * KIB * KIB, GATEWAY_LIMIT + 1])
def test_a_body_above_the_gateways_limit_is_413(caller: httpx.Client, size: int) -> None:
    headers = {"Content-Type": "application/json"}
    answer = post(caller, "/chunking/chunk", content=b"{}".ljust(size), headers=headers)
    refused(answer, 413, "payload_too_large")


@pytest.mark.shows("B20")
def test_headers_that_are_too_large_are_431(caller: httpx.Client) -> None:
    for headers in ({"X-Long": "x" * 11_000}, {f"X-{number}": "x" * 50 for number in range(200)}):
        refused(caller.get("/orchestrator/jobs", headers=headers), 431, "headers_too_large")


@pytest.mark.shows("B17")
def test_a_body_that_does_not_arrive_is_408(stack: RunningStack) -> None:
    address = httpx.URL(stack.gateway)
    head = f"POST {address.path.rstrip('/')}/scraper/enqueue HTTP/1.1\r\nHost: {address.host}\r\n"
    head += f"X-API-Key: {stack.api_key}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    with socket.create_connection((address.host, address.port or 80), timeout=20) as client:
        client.sendall(head.encode())
        answer = HTTPResponse(client)
        answer.begin()
        error = json.loads(answer.read())["error"]
    assert (answer.status, error["code"]) == (408, "request_timeout")


@pytest.mark.shows("B23")
def test_a_path_that_is_too_long_is_414(caller: httpx.Client) -> None:
    refused(caller.get(f"/orchestrator/jobs/{'x' * 9000}"), 414, "uri_too_long")


@pytest.mark.shows("B22", "B23")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", f"/{MARK}"),
        ("GET", "/ORCHESTRATOR/JOBS"),
        ("GET", "/orchestrator//jobs"),
        ("GET", "/scraper/scrape"),
        ("DELETE", "/orchestrator/jobs"),
        ("PUT", "/embedding/search"),
        ("POST", "/orchestrator/jobs/one/two"),
        ("GET", "/orchestrator/jobs/one/complete"),
    ],
)
def test_an_unknown_path_or_method_is_404(
    stack: RunningStack, caller: httpx.Client, method: str, path: str
) -> None:
    refused(caller.request(method, path), 404, "not_found")
    with stack.http("") as anonymous:
        refused(anonymous.request(method, path), 404, "not_found")


@pytest.mark.shows("B71")
@pytest.mark.parametrize(
    "job_id",
    [MARK, "0", "..", "%ff", f"{{{JOB_ID}}}", JOB_ID.upper(), "1' OR '1'='1", "x" * 4000],
)
def test_a_malformed_job_id_is_404(caller: httpx.Client, job_id: str) -> None:
    refused(caller.get(f"/orchestrator/jobs/{job_id}"), 404, "not_found")


KEYS: dict[str, list[tuple[bytes, bytes]]] = {
    "none": [],
    "empty": [(b"X-API-Key", b"")],
    "unknown": [(b"X-API-Key", MARK.encode())],
    "too long": [(b"X-API-Key", b"k" * 8000)],
    "not ASCII": [(b"X-API-Key", b"dev-\xc3\xa9")],
    "like JSON": [(b"X-API-Key", b'{"$ne": 1}')],
    "another header": [(b"Authorization", b"Bearer x")],
}
NOT_ASKED = {"none", "empty", "too long", "not ASCII", "another header"}


@pytest.mark.shows("B24", "B25")
@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_is_not_valid_is_401(stack: RunningStack, name: str) -> None:
    before = stack.stand_in_state("membership")["calls"]
    with stack.http("") as anonymous:
        answer = anonymous.post("/orchestrator/jobs", json={"url": URL}, headers=KEYS[name])
    refused(answer, 401, "invalid_api_key", "/orchestrator/jobs")
    assert stack.stand_in_state("membership")["calls"] == before + (name not in NOT_ASKED)


@pytest.mark.shows("B24", "B26")
def test_nearly_the_right_key_is_401(stack: RunningStack) -> None:
    key = stack.api_key
    with stack.http("") as anonymous:
        for wrong in (key + "x", key[:-1], key.swapcase()):
            refused(anonymous.get("/orchestrator/jobs", headers={"X-API-Key": wrong}), 401, "invalid_api_key")
        two = [("X-API-Key", key), ("X-API-Key", key)]
        refused(anonymous.get("/orchestrator/jobs", headers=two), 401, "invalid_api_key")
        refused(
            anonymous.get("/orchestrator/jobs", params={"X-API-Key": key, "api_key": key}),
            401,
            "invalid_api_key",
        )


@pytest.mark.shows("B27")
def test_a_key_in_a_wrong_place_is_in_no_log(stack: RunningStack, caller: httpx.Client) -> None:
    canary = f"dev-canary-{uuid.uuid4().hex}"
    with stack.http("") as anonymous:
        refused(anonymous.get("/orchestrator/jobs", params={"api_key": canary}), 401, "invalid_api_key")
        refused(anonymous.post("/scraper/scrape", json={"api_key": canary}), 401, "invalid_api_key")
    refused(caller.get("/orchestrator/jobs", params={"api_key": canary}), 422, "validation_error")
    refused(post(caller, "/scraper/scrape", json={"url": URL, "api_key": canary}), 422, "validation_error")
    refused(post(caller, "/scraper/scrape", json={"url": f"ftp://{canary}/"}), 422, "url_scheme_not_allowed")
    logs = Path(stack.state) / "logs"
    found = [path for path in logs.rglob("*") if path.is_file()]
    assert len(found) > 5
    assert [path.name for path in found if canary.encode() in path.read_bytes()] == []
