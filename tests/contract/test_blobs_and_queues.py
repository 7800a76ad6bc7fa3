"""One suite for every blob store and queue: the twins, and both kinds of clients, behave as S3 and SQS do."""

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
from indexmill.orchestrator.adapters.aws import S3Objects
from indexmill.platform.aws.clients import CallLimits, DirectClient
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue, SqsBacklog
from local.backends.ministack import MiniStack
from local.triggers.sqs_events import record as sqs_record
from tests.support.ministack import REGION
from tests.twins.blobs import InMemoryBlobs
from tests.twins.queues import QUEUE_ARN, InMemoryQueue

KEYS = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
Drain = Callable[[], list[str]]


CLIENTS = pytest.mark.parametrize("kind", ["boto3", "direct"])


_MADE: list[Any] = []


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set region and credentials as a function has them."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name.replace("region_name", "aws_default_region").upper(), value)
    yield
    while _MADE:
        _MADE.pop().close()


def aws(service: str, endpoint: str, kind: str = "boto3", tries: int = 2) -> Any:
    """Return a client of one kind that tries so often."""
    if kind == "direct":
        _MADE.append(DirectClient(service, CallLimits(1.0, 1.0, tries), endpoint))
        return _MADE[-1]
    make: Any = boto3.client
    retries = {"mode": "standard", "total_max_attempts": tries}
    config = Config(retries=retries, connect_timeout=1, read_timeout=1)
    return make(service, endpoint_url=endpoint, config=config, **KEYS)


@pytest.fixture(params=["twin", "boto3", "direct"])
def blobs(request: pytest.FixtureRequest) -> BlobStore:
    if request.param == "twin":
        return InMemoryBlobs()
    server: MiniStack = request.getfixturevalue("ministack")
    s3, bucket = aws("s3", server.endpoint), f"blobs-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    return BlobStore(bucket, aws("s3", server.endpoint, request.param))


@pytest.fixture(params=["twin", "boto3", "direct"])
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

    return Queue(url, aws("sqs", server.endpoint, request.param)), drain


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


@pytest.mark.fault("F54")
def test_an_object_that_is_larger_than_announced_is_not_read(blobs: BlobStore) -> None:
    ref = blobs.put(b"content" * 100, kind="raw", content_type="text/plain")
    for _ in range(2):
        with pytest.raises(PermanentError) as caught:
            blobs.get(ref.model_copy(update={"size": 7}))
        assert caught.value.code == "content_corrupt"
    assert blobs.get(ref) == b"content" * 100


@CLIENTS
def test_an_object_is_counted_until_it_is_removed(ministack: MiniStack, kind: str) -> None:
    s3, bucket = aws("s3", ministack.endpoint), f"blobs-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    client = aws("s3", ministack.endpoint, kind)
    ref = BlobStore(bucket, client).put(b"content", kind="raw", content_type="text/plain")
    objects = S3Objects(bucket, client)
    assert [objects.count(ref.key), objects.remove(ref.key), objects.count(ref.key)] == [1, 1, 0]
    assert objects.remove(ref.key) == 0


class _Failing(BaseHTTPRequestHandler):
    """An S3, or SQS, that answers its first requests badly; then every object is "content"."""

    protocol_version = "HTTP/1.1"
    wrong: ClassVar[list[str]] = []
    statuses: ClassVar[dict[str, int]] = {"slow": 503, "broken": 500, "refused": 403, "throttled": 400}

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = self.wrong.pop(0) if self.wrong else ""
        self.close_connection = kind in ("cut", "gone")
        if kind == "gone":
            return
        if self.command == "POST":
            taken = {"Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": ""}], "Failed": []}
            error = {"__type": f"com.amazonaws.sqs#{_CODES.get(kind)}", "message": "no"}
            body = json.dumps(error if kind in self.statuses else taken).encode()
        else:
            error_xml = f"<Error><Code>{_CODES.get(kind)}</Code><Message>no</Message></Error>".encode()
            found = b"content" if self.command == "GET" else b""
            body = error_xml if kind in self.statuses else found
        self.send_response(self.statuses.get(kind, 200))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:3] if kind == "cut" else body)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815 - the server looks for these names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_CODES = {
    "slow": "SlowDown",
    "broken": "InternalError",
    "refused": "AccessDenied",
    "throttled": "ThrottlingException",
}
Failing = tuple[BlobStore, Queue, list[str]]


@pytest.fixture(params=["boto3", "direct"])
def failing(request: pytest.FixtureRequest) -> Iterator[Failing]:
    """Yield a store and a queue that fail, tried twice, and how their next requests end."""
    _Failing.wrong = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        s3, sqs = (aws(each, endpoint, request.param) for each in ("s3", "sqs"))
        yield BlobStore("bucket", s3), Queue(f"{endpoint}/0/q", sqs), _Failing.wrong
        s3.close()
        sqs.close()
        server.shutdown()


@pytest.mark.fault("F54")
@pytest.mark.parametrize("kind", ["slow", "cut"])
def test_an_s3_that_is_busy_or_cuts_a_body_is_tried_again(failing: Failing, kind: str) -> None:
    blobs, _, wrong = failing
    ref = blobs.put(b"content", kind="raw", content_type="text/plain")
    wrong[:] = [kind] * 2
    with pytest.raises(TransientError) as caught:
        blobs.get(ref)
    assert caught.value.code == "storage_unavailable"
    wrong.clear()
    assert blobs.get(ref) == b"content"


@pytest.mark.fault("F54")
def test_a_write_that_s3_slows_down_is_transient(failing: Failing) -> None:
    blobs, _, wrong = failing
    wrong[:] = ["slow"]
    blobs.put(b"content", kind="raw", content_type="text/plain")
    assert wrong == []
    wrong[:] = ["slow"] * 2
    with pytest.raises(TransientError) as caught:
        blobs.put(b"content", kind="raw", content_type="text/plain")
    assert (caught.value.code, wrong) == ("storage_unavailable", [])


@pytest.mark.fault("F25")
@pytest.mark.parametrize("kind", ["broken", "gone", "throttled"])
def test_a_send_that_fails_once_is_tried_again_and_no_more_than_allowed(failing: Failing, kind: str) -> None:
    _, queue, wrong = failing
    wrong[:] = [kind]
    assert queue.send(["x"]) == []
    wrong[:] = [kind] * 3
    with pytest.raises(TransientError) as caught:
        queue.send(["x"])
    assert (caught.value.code, wrong) == ("queue_unavailable", [kind])


@pytest.mark.fault("F54")
def test_what_is_refused_is_not_tried_again(failing: Failing) -> None:
    blobs, queue, wrong = failing
    wrong[:] = ["refused"] * 4
    with pytest.raises(TransientError):
        blobs.put(b"content", kind="raw", content_type="text/plain")
    with pytest.raises(TransientError):
        blobs.get(BlobRef.of(b"content", "raw"))
    with pytest.raises(TransientError):
        queue.send(["x"])
    assert wrong == ["refused"]


@pytest.mark.fault("F26")
def test_every_body_arrives_however_many_and_large(queue_and_drain: tuple[Queue, Drain]) -> None:
    queue, drain = queue_and_drain
    bodies = [json.dumps({"n": n, "text": "ä" * (n % 5) * 40_000}) for n in range(25)]
    assert queue.send(bodies) == []
    assert sorted(drain()) == sorted(bodies)
    assert queue.send([]) == []


@CLIENTS
@pytest.mark.parametrize(
    ("group", "reported"), [("0123456789abcdef", "0123456789abcdef"), ("a caller", None)]
)
def test_a_standard_queue_takes_the_callers_as_groups(
    ministack: MiniStack, group: str, reported: str | None, kind: str
) -> None:
    """So SQS gives out one caller's messages while another one's backlog waits; odd names are hashed."""
    sqs = aws("sqs", ministack.endpoint)
    url = sqs.create_queue(QueueName=f"queue-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    assert Queue(url, aws("sqs", ministack.endpoint, kind)).send(["one", "two"], [group, ""]) == []
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    groups = {message["Body"]: message["Attributes"].get("MessageGroupId") for message in found}
    assert groups == {"one": reported or hashlib.sha256(group.encode()).hexdigest(), "two": None}


@CLIENTS
def test_an_unavailable_store_or_queue_raises_its_code(kind: str) -> None:
    unavailable = "http://127.0.0.1:1"
    with pytest.raises(TransientError) as caught:
        Queue(f"{unavailable}/0/q", aws("sqs", unavailable, kind)).send(["x"])
    assert caught.value.code == "queue_unavailable"
    with pytest.raises(TransientError) as caught:
        BlobStore("bucket", aws("s3", unavailable, kind)).put(b"x", kind="raw", content_type="text/plain")
    assert caught.value.code == "storage_unavailable"


@CLIENTS
def test_messages_are_counted_given_back_and_deleted(ministack: MiniStack, kind: str) -> None:
    sqs, client = aws("sqs", ministack.endpoint), aws("sqs", ministack.endpoint, kind)
    url = sqs.create_queue(QueueName=f"queue-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    queue, backlog = Queue(url, client), SqsBacklog([url], client)
    assert queue.send([f"{at}" for at in range(12)]) == []
    assert backlog.messages() == 12
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    queue.give_back([(message["ReceiptHandle"], 0.0) for message in found])
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    found += sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    queue.delete([message["ReceiptHandle"] for message in found])
    assert (len(found), backlog.messages()) == (12, 0)


@CLIENTS
def test_the_reason_of_a_dead_letter_arrives_as_its_attribute(ministack: MiniStack, kind: str) -> None:
    sqs = aws("sqs", ministack.endpoint)
    url = sqs.create_queue(QueueName=f"dead-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    assert Queue(url, aws("sqs", ministack.endpoint, kind)).send(["{}"], reason="token_limit_exceeded") == []
    (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    record = sqs_record(message, QUEUE_ARN, REGION)
    assert record["messageAttributes"]["reason"]["stringValue"] == "token_limit_exceeded"
