"""Requests that are signed and sent without botocore."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.retries import standard

from indexmill.platform.aws.clients import RETRIED, CallLimits, DirectClient, sign

AT = datetime(2026, 3, 14, 10, 22, 5, tzinfo=UTC)
DYNAMODB = {"x-amz-target": "DynamoDB_20120810.GetItem"}
S3 = {"x-amz-content-sha256": hashlib.sha256(b"{}").hexdigest(), "content-type": "text/html"}


@pytest.mark.parametrize("token", [None, "session/token=="])
@pytest.mark.parametrize(
    ("service", "method", "path", "headers", "body"),
    [
        ("dynamodb", "POST", "/", DYNAMODB, b"{}"),
        ("dynamodb", "POST", "/", DYNAMODB, '{"Key": "ключ"}'.encode()),
        ("s3", "PUT", "/bucket/raw/a%20b%25~_-.%C3%A4", S3, b"{}"),
    ],
)
def test_the_signature_is_that_of_botocore(
    monkeypatch: pytest.MonkeyPatch,
    token: str | None,
    service: str,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes,
) -> None:
    host = f"{service}.eu-west-1.amazonaws.com"
    request = AWSRequest(method, f"https://{host}{path}", headers, body)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: AT)
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    # A payload that is not signed itself is S3's default over TLS.
    request.context["client_config"] = Config(s3={"payload_signing_enabled": True})
    signer(Credentials("AKID", "secret", token), service, "eu-west-1").add_auth(request)
    keys = ("AKID", "secret", token)
    ours = sign(method, path, {"host": host, **headers}, body, keys=keys, scope=("eu-west-1", service), at=AT)
    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["x-amz-date"] == request.headers["X-Amz-Date"]
    assert ours.get("x-amz-security-token") == token


def test_what_is_tried_again_is_what_botocore_tries_again() -> None:
    """All of these services' codes; botocore's others are those of services that are not called."""
    transient, throttled = standard.TransientRetryableChecker, standard.ThrottledRetryableChecker
    known = {
        *transient._TRANSIENT_ERROR_CODES,
        *transient._TRANSIENT_STATUS_CODES,
        *throttled._THROTTLED_ERROR_CODES,
        *standard.ThrottlingStatusCodeChecker._THROTTLING_STATUS_CODES,
    }
    assert RETRIED.keys() <= known
    assert set(transient._TRANSIENT_STATUS_CODES) <= RETRIED.keys()
    slow = {code for code, pause_s in RETRIED.items() if pause_s == 1.0}
    assert slow <= {*throttled._THROTTLED_ERROR_CODES, 429}


class Endpoint(BaseHTTPRequestHandler):
    """Closes its connection after every second answer without a word, as servers do with idle ones."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[list[tuple[int, bytes]]] = []
    asked = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Endpoint.asked += 1
        status, body = Endpoint.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = Endpoint.asked % 2 == 0

    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "eu-west-1")
        made = DirectClient("dynamodb", CallLimits(1, 1, 1), f"http://127.0.0.1:{server.server_port}")
        yield made
        made.close()
        server.shutdown()
        thread.join()


def get(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get_item(TableName="t", Key={"pk": {"S": "a"}})
    return found


def test_a_connection_that_the_other_side_closed_is_replaced(client: Any) -> None:
    item = {"Item": {"pk": {"S": "a"}}}
    Endpoint.answers = [(200, json.dumps(item).encode())] * 7
    assert all(get(client)["Item"] == item["Item"] for _ in range(7))


def test_errors_are_botocores(client: Any) -> None:
    refused = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "message": "no"}
    Endpoint.answers = [(400, json.dumps({**refused, "Item": {"n": {"N": "1"}}}).encode())]
    with pytest.raises(ClientError) as caught:
        get(client)
    found: Any = caught.value.response
    assert (found["Error"]["Code"], found["Item"]) == ("ConditionalCheckFailedException", {"n": {"N": "1"}})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{"])
def test_an_unreadable_answer_is_an_error_of_botocore(client: Any, body: bytes) -> None:
    Endpoint.answers = [(200, body)]
    with pytest.raises(BotoCoreError):
        get(client)
