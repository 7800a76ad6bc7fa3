"""One suite for every blob store and every queue: the twins behave as S3 and SQS do."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import boto3
import pytest
from botocore.config import Config

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import PermanentError, TransientError
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue
from local.backends.ministack import MiniStack
from local.triggers.sqs_events import record as sqs_record
from tests.support.ministack import REGION
from tests.twins.blobs import InMemoryBlobs
from tests.twins.queues import QUEUE_ARN, InMemoryQueue

KEYS = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
Drain = Callable[[], list[str]]


def aws(service: str, endpoint: str) -> Any:
    make: Any = boto3.client
    return make(service, endpoint_url=endpoint, **KEYS)


@pytest.fixture(params=["twin", "s3"])
def blobs(request: pytest.FixtureRequest) -> BlobStore:
    if request.param == "twin":
        return InMemoryBlobs()
    server: MiniStack = request.getfixturevalue("ministack")
    s3, bucket = aws("s3", server.endpoint), f"blobs-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    return BlobStore(bucket, s3)


@pytest.fixture(params=["twin", "sqs"])
def queue_and_drain(request: pytest.FixtureRequest) -> tuple[Queue, Drain]:
    """Return a queue and a way to read what arrived in it."""
    if request.param == "twin":
        twin = InMemoryQueue()
        return twin, lambda: twin.bodies
    server: MiniStack = request.getfixturevalue("ministack")
    sqs = aws("sqs", server.endpoint)
    url = sqs.create_queue(QueueName=f"queue-{uuid.uuid4().hex[:8]}")["QueueUrl"]

    def drain() -> list[str]:
        found: list[str] = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            found.extend(message["Body"] for message in messages)
        return found

    return Queue(url, sqs), drain


@pytest.mark.shows("B86")
@pytest.mark.parametrize("data", [b"", b"text", bytes(range(256)) * 1000])
def test_what_was_put_is_what_is_got(blobs: BlobStore, data: bytes) -> None:
    ref = blobs.put(data, kind="raw", content_type="application/octet-stream")
    assert (ref.size, ref.key.split("/")[0], ref.key.split("/")[2]) == (len(data), "raw", ref.sha256)
    assert blobs.get(ref) == data


def test_putting_twice_is_putting_once(blobs: BlobStore) -> None:
    first = blobs.put(b"same", kind="text", content_type="text/plain")
    assert blobs.put(b"same", kind="text", content_type="text/plain") == first


@pytest.mark.fault("F54")
def test_a_missing_and_a_changed_object_are_distinguished(blobs: BlobStore) -> None:
    with pytest.raises(PermanentError) as caught:
        blobs.get(BlobRef(key="raw/00/none", size=1, sha256="0" * 64))
    assert caught.value.code == "content_missing"
    ref = blobs.put(b"content", kind="raw", content_type="text/plain")
    with pytest.raises(PermanentError) as caught:
        blobs.get(ref.model_copy(update={"sha256": "0" * 64}))
    assert caught.value.code == "content_corrupt"


class _Failing(BaseHTTPRequestHandler):
    """An S3 that answers its first requests badly; then every object is "content"."""

    wrong: ClassVar[list[str]] = []

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = self.wrong.pop(0) if self.wrong else ""
        busy = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
        body = busy if kind == "slow" else b"content" if self.command == "GET" else b""
        self.send_response(503 if kind == "slow" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:3] if kind == "cut" else body)
        self.close_connection = kind == "cut"

    do_GET = do_PUT = _answer  # noqa: N815 - the server looks for these names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def failing() -> Iterator[tuple[BlobStore, list[str]]]:
    """Yield a store over an S3 that fails, tried twice, and how its next requests end."""
    _Failing.wrong = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = Config(retries={"mode": "standard", "total_max_attempts": 2})
        make: Any = boto3.client
        s3 = make("s3", endpoint_url=f"http://127.0.0.1:{server.server_port}", config=config, **KEYS)
        yield BlobStore("b", s3), _Failing.wrong
        s3.close()
        server.shutdown()


@pytest.mark.fault("F54")
@pytest.mark.parametrize("kind", ["slow", "cut"])
def test_an_s3_that_is_busy_or_cuts_a_body_is_tried_again(
    failing: tuple[BlobStore, list[str]], kind: str
) -> None:
    blobs, wrong = failing
    ref = blobs.put(b"content", kind="raw", content_type="text/plain")
    wrong[:] = [kind] * 2
    with pytest.raises(TransientError) as caught:
        blobs.get(ref)
    assert caught.value.code == "storage_unavailable"
    wrong.clear()
    assert blobs.get(ref) == b"content"


@pytest.mark.fault("F54")
def test_a_write_that_s3_slows_down_is_transient(failing: tuple[BlobStore, list[str]]) -> None:
    blobs, wrong = failing
    wrong[:] = ["slow"]
    blobs.put(b"content", kind="raw", content_type="text/plain")
    assert wrong == []
    wrong[:] = ["slow"] * 2
    with pytest.raises(TransientError) as caught:
        blobs.put(b"content", kind="raw", content_type="text/plain")
    assert (caught.value.code, wrong) == ("storage_unavailable", [])


@pytest.mark.fault("F26")
def test_every_body_arrives_however_many_and_large(queue_and_drain: tuple[Queue, Drain]) -> None:
    queue, drain = queue_and_drain
    bodies = [json.dumps({"n": n, "text": "ä" * (n % 5) * 40_000}) for n in range(25)]
    assert queue.send(bodies) == []
    assert sorted(drain()) == sorted(bodies)
    assert queue.send([]) == []


@pytest.mark.parametrize(
    ("group", "reported"), [("0123456789abcdef", "0123456789abcdef"), ("a caller", None)]
)
def test_a_standard_queue_takes_the_callers_as_groups(
    ministack: MiniStack, group: str, reported: str | None
) -> None:
    """So SQS gives out one caller's messages while another one's backlog waits; odd names are hashed."""
    sqs = aws("sqs", ministack.endpoint)
    url = sqs.create_queue(QueueName=f"queue-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    assert Queue(url, sqs).send(["one", "two"], [group, ""]) == []
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    groups = {message["Body"]: message["Attributes"].get("MessageGroupId") for message in found}
    assert groups == {"one": reported or hashlib.sha256(group.encode()).hexdigest(), "two": None}


def test_an_unavailable_store_or_queue_raises_its_code() -> None:
    unavailable = "http://127.0.0.1:1"
    with pytest.raises(TransientError) as caught:
        Queue(f"{unavailable}/0/q", aws("sqs", unavailable)).send(["x"])
    assert caught.value.code == "queue_unavailable"
    with pytest.raises(TransientError) as caught:
        BlobStore("bucket", aws("s3", unavailable)).put(b"x", kind="raw", content_type="text/plain")
    assert caught.value.code == "storage_unavailable"


def test_the_reason_of_a_dead_letter_arrives_as_its_attribute(ministack: MiniStack) -> None:
    sqs = aws("sqs", ministack.endpoint)
    url = sqs.create_queue(QueueName=f"dead-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    assert Queue(url, sqs).send(["{}"], reason="token_limit_exceeded") == []
    (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    record = sqs_record(message, QUEUE_ARN, REGION)
    assert record["messageAttributes"]["reason"]["stringValue"] == "token_limit_exceeded"
