"""MiniStack as a child process, its resources, and the additions of our server."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

from local.backends.ministack import MiniStack, MiniStackFailed, create_resources
from local.backends.ministack_server import COUNTS_PATH, JoinedWrites
from local.triggers.sqs_client import SqsClient, SqsError
from tests.integration.triggers.harness import ACCOUNT, REGION, Queue

Connect = Callable[[str, str], SqsClient]
TEMPLATE: dict[str, Any] = {
    "Parameters": {"Visibility": {"Type": "Number", "Default": 360}},
    "Resources": {
        "Function": {"Type": "AWS::Lambda::Function", "Properties": {}},
        "Dead": {"Type": "AWS::SQS::Queue", "DependsOn": "Function", "Properties": {}},
        "Work": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "VisibilityTimeout": {"Ref": "Visibility"},
                "RedrivePolicy": {
                    "maxReceiveCount": 7,
                    "deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]},
                },
            },
        },
        "Raw": {"Type": "AWS::S3::Bucket"},
        "Counters": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
                "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
            },
        },
        "Key": {"Type": "AWS::SecretsManager::Secret", "Properties": {"SecretString": "s3cret"}},
    },
}


def _client(name: str, endpoint: str) -> Any:
    session: Any = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION)
    return session.client(name, endpoint_url=endpoint)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_listens_on_loopback_only(ministack: MiniStack) -> None:
    folder = Path(f"/proc/{ministack.pid}")
    links = [str(entry.readlink()) for entry in (folder / "fd").iterdir() if entry.is_symlink()]
    inodes = {m[1] for link in links if (m := re.match(r"socket:\[(\d+)\]", link))}
    rows = [row.split() for f in ("tcp", "tcp6") for row in (folder / "net" / f).read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
    assert len(listening) == 1
    assert listening[0].startswith("0100007F:")


async def test_it_counts_requests_by_operation(ministack: MiniStack) -> None:
    def counted() -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = httpx.get(ministack.endpoint + COUNTS_PATH).json()
        return found

    queue = Queue(ministack.endpoint)
    sqs, s3 = _client("sqs", ministack.endpoint), _client("s3", ministack.endpoint)
    s3.create_bucket(Bucket="counted", CreateBucketConfiguration={"LocationConstraint": REGION})
    before = counted()
    sqs.send_message(QueueUrl=queue.url, MessageBody="x" * 70_000)
    assert len(sqs.receive_message(QueueUrl=queue.url)["Messages"]) == 1
    assert "Messages" not in sqs.receive_message(QueueUrl=queue.url)
    s3.put_object(Bucket="counted", Key="a", Body=b"a")
    s3.get_object(Bucket="counted", Key="a")
    s3.get_object(Bucket="counted", Key="a")
    nothing = {"requests": 0, "empty": 0, "units": 0}
    new = {
        name: {key: value - before.get(name, nothing)[key] for key, value in count.items()}
        for name, count in counted().items()
    }
    assert new["sqs:SendMessage"] == {"requests": 1, "empty": 0, "units": 2}
    assert new["sqs:ReceiveMessage"] == {"requests": 2, "empty": 1, "units": 3}
    assert (new["s3:PUT"]["requests"], new["s3:GET"]["requests"]) == (1, 2)


async def test_a_start_without_the_package_says_what_the_log_says(tmp_path: Path) -> None:
    server = MiniStack(tmp_path, Path(sys.executable), account_id=ACCOUNT, region=REGION)
    with pytest.raises(MiniStackFailed, match="No module named"):
        await server.start()
    assert server.pid is None


async def test_it_ends_when_its_parent_is_gone(tmp_path: Path, ministack_python: Path) -> None:
    server = MiniStack(tmp_path, ministack_python, account_id=ACCOUNT, region=REGION)
    await server.start()
    process = server._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(server.wait(), 5) is not None
    await server.stop()


async def test_state_outlives_a_restart_when_asked(
    tmp_path: Path, ministack_python: Path, connect: Connect
) -> None:
    first = MiniStack(tmp_path, ministack_python, account_id=ACCOUNT, region=REGION, persist=True)
    endpoint = await first.start()
    made = await asyncio.to_thread(create_resources, endpoint, TEMPLATE, region=REGION)
    await asyncio.to_thread(
        _client("sqs", endpoint).send_message, QueueUrl=made.ids["Work"], MessageBody="kept"
    )
    await asyncio.to_thread(_client("s3", endpoint).put_object, Bucket=made.ids["Raw"], Key="k", Body=b"kept")
    await first.stop()
    port = int(endpoint.rpartition(":")[2])
    again = MiniStack(tmp_path, ministack_python, account_id=ACCOUNT, region=REGION, persist=True, port=port)
    try:
        assert await again.start() == endpoint
        same = await asyncio.to_thread(create_resources, endpoint, TEMPLATE, region=REGION)
        found = await connect(endpoint, same.ids["Work"]).receive(10)
        stored = await asyncio.to_thread(_client("s3", endpoint).get_object, Bucket=same.ids["Raw"], Key="k")
        assert [m["Body"] for m in found] == ["kept"]
        assert stored["Body"].read() == b"kept"
    finally:
        await again.stop()


def test_the_stateful_resources_of_a_template_are_created_and_updated(endpoint: str) -> None:
    made = create_resources(endpoint, TEMPLATE, region=REGION, parameters={"Visibility": "60", "Other": "x"})
    assert set(made.ids) == {"Dead", "Work", "Raw", "Counters", "Key"}
    assert made.arns["Work"].startswith(f"arn:aws:sqs:{REGION}:{ACCOUNT}:")
    assert made.ids["Key"] == made.arns["Key"]
    sqs = _client("sqs", endpoint)
    found = sqs.get_queue_attributes(QueueUrl=made.ids["Work"], AttributeNames=["All"])["Attributes"]
    assert found["VisibilityTimeout"] == "60"
    policy = json.loads(found["RedrivePolicy"])
    assert (int(policy["maxReceiveCount"]), policy["deadLetterTargetArn"]) == (7, made.arns["Dead"])
    ttl = _client("dynamodb", endpoint).describe_time_to_live(TableName=made.ids["Counters"])
    assert ttl["TimeToLiveDescription"]["AttributeName"] == "expires_at"
    assert _client("s3", endpoint).list_objects_v2(Bucket=made.ids["Raw"])["KeyCount"] == 0
    secret = _client("secretsmanager", endpoint).get_secret_value(SecretId=made.arns["Key"])
    assert secret["SecretString"] == "s3cret"
    assert create_resources(endpoint, TEMPLATE, region=REGION, parameters={"Visibility": "60"}) == made


def test_a_reference_to_something_that_is_left_out_is_refused(endpoint: str) -> None:
    policy = {"deadLetterTargetArn": {"Fn::GetAtt": "Function.Arn"}, "maxReceiveCount": 1}
    work = {"Type": "AWS::SQS::Queue", "Properties": {"RedrivePolicy": policy}}
    template = {"Resources": {"Work": work, "Function": {"Type": "AWS::Lambda::Function"}}}
    with pytest.raises(ValueError, match="Work refers to Function"):
        create_resources(endpoint, template, region=REGION)


async def test_a_waiting_receive_is_answered_at_once(queue: Callable[..., Queue], connect: Connect) -> None:
    q = queue()
    client = connect(q.endpoint, q.url)
    delays = []
    for _ in range(5):
        waiting = asyncio.create_task(client.receive(10, 10))
        await asyncio.sleep(0.03)
        await q.send("now")
        sent = time.monotonic()
        assert [m["Body"] for m in await waiting] == ["now"]
        delays.append(time.monotonic() - sent)
    # MiniStack itself polls every 100 ms: 70 ms after it was sent.
    assert min(delays) < 0.04


async def test_a_waiting_receive_sees_a_message_whose_visibility_ends(
    queue: Callable[..., Queue], connect: Connect
) -> None:
    q = queue(visibility_s=1)
    await q.send("again")
    client = connect(q.endpoint, q.url)
    assert await client.receive(10)
    start = time.monotonic()
    assert await client.receive(10, 5)
    assert 0.7 < time.monotonic() - start < 4


async def test_a_receive_that_is_given_up_takes_no_message(
    queue: Callable[..., Queue], connect: Connect
) -> None:
    q = queue()
    client = connect(q.endpoint, q.url)
    waiting = asyncio.create_task(client.receive(10, 20))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.05)
    await q.send("for the next")
    found = await client.receive(10)
    assert [m["Attributes"]["ApproximateReceiveCount"] for m in found] == ["1"]


async def test_deleting_twice_succeeds_as_on_aws(queue: Callable[..., Queue], connect: Connect) -> None:
    q = queue()
    await q.send("x")
    client = connect(q.endpoint, q.url)
    handles = [m["ReceiptHandle"] for m in await client.receive(10)]
    assert await client.delete(handles) == 0
    assert await client.delete(handles) == 0
    assert await client.delete(["no receipt handle"]) == 1


async def test_a_receive_that_waits_at_a_dead_letter_queue_is_answered_at_once(
    queue: Callable[..., Queue], connect: Connect
) -> None:
    dead = queue()
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    q = queue(RedrivePolicy=json.dumps(policy))
    client, graveyard = connect(q.endpoint, q.url), connect(q.endpoint, dead.url)
    delays = []
    for _ in range(5):
        await q.send("poison")
        await client.give_back([m["ReceiptHandle"] for m in await client.receive(10)])
        waiting = asyncio.create_task(graveyard.receive(10, 10))
        await asyncio.sleep(0.03)
        moved = time.monotonic()
        assert await client.receive(10) == []
        assert [m["Body"] for m in await waiting] == ["poison"]
        delays.append(time.monotonic() - moved)
    # Woken by nothing, each of them would wait for about a second.
    assert sorted(delays)[2] < 0.3


def test_a_key_of_twelve_digits_is_an_account_of_its_own(endpoint: str) -> None:
    accounts = {}
    for account in ("111111111111", "222222222222"):
        session: Any = boto3.Session(aws_access_key_id=account, aws_secret_access_key="y", region_name=REGION)
        sqs = session.client("sqs", endpoint_url=endpoint)
        accounts[account] = sqs, sqs.create_queue(QueueName="same")["QueueUrl"]
    for account, (sqs, url) in accounts.items():
        entries = [{"Id": "0", "MessageBody": account}]
        assert sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    for account, (sqs, url) in accounts.items():
        assert [m["Body"] for m in sqs.receive_message(QueueUrl=url)["Messages"]] == [account]


async def test_a_call_for_a_queue_that_does_not_exist_has_the_code_of_aws(
    queue: Callable[..., Queue], connect: Connect
) -> None:
    q = queue()
    with pytest.raises(SqsError) as refused:
        await connect(q.endpoint, f"{q.url}-missing").receive(10)
    assert refused.value.code == "QueueDoesNotExist"


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.closed = True


async def test_head_and_body_of_an_answer_are_one_segment() -> None:
    transport = _Transport()
    joined = JoinedWrites(transport)
    joined.write(b"head")
    joined.write(b"body")
    await asyncio.sleep(0)
    assert transport.sent == [b"headbody"]
    joined.write(b"last")
    joined.close()
    assert (transport.sent, transport.closed) == ([b"headbody", b"last"], True)
