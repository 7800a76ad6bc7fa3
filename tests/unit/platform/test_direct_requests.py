"""Requests to DynamoDB that are signed and sent without botocore."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import boto3
import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import DirectRequests, sign

AT = datetime(2026, 3, 14, 10, 22, 5, tzinfo=UTC)
TARGET = "DynamoDB_20120810.GetItem"


@pytest.mark.parametrize("token", [None, "session/token=="])
@pytest.mark.parametrize("body", [b"{}", '{"Key": "ключ"}'.encode()])
def test_the_signature_is_that_of_botocore(
    monkeypatch: pytest.MonkeyPatch, token: str | None, body: bytes
) -> None:
    host = "dynamodb.eu-west-1.amazonaws.com"
    request = AWSRequest("POST", f"https://{host}/", {"X-Amz-Target": TARGET}, body)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: AT)
    SigV4Auth(Credentials("AKID", "secret", token), "dynamodb", "eu-west-1").add_auth(request)
    ours = sign(
        body,
        {"host": host, "x-amz-target": TARGET},
        keys=("AKID", "secret", token),
        region="eu-west-1",
        at=AT,
    )
    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["x-amz-date"] == request.headers["X-Amz-Date"]
    assert ours.get("x-amz-security-token") == token


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
def client() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        make: Any = boto3.client
        made = make(
            "dynamodb",
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            region_name="eu-west-1",
            aws_access_key_id="AKID",
            aws_secret_access_key="secret",
        )
        direct = DirectRequests(1, 1)
        made.meta.events.register("before-call.dynamodb", direct.send)
        yield made
        direct.close()
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
    assert type(caught.value).__name__ == "ConditionalCheckFailedException"
    assert (found["Error"]["Code"], found["Item"]) == ("ConditionalCheckFailedException", {"n": {"N": "1"}})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{"])
def test_an_unreadable_answer_is_an_error_of_botocore(client: Any, body: bytes) -> None:
    Endpoint.answers = [(200, body)]
    with pytest.raises(BotoCoreError):
        get(client)
