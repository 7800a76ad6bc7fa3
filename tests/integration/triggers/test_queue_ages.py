"""The age of a queue's oldest message, by the rules of CloudWatch's ApproximateAgeOfOldestMessage."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

import boto3
import pytest
import pytest_asyncio

from local.metrics.queues import QueueDepth, Queues
from tests.integration.triggers.harness import REGION, Queue

MakeQueue = Callable[..., Queue]
Ages = Callable[..., Queues]


@pytest.fixture
def ages(endpoint: str) -> Ages:
    def make(**queues: Queue) -> Queues:
        return Queues(endpoint, {name: each.url for name, each in queues.items()}, region=REGION)

    return make


async def age(queues: Queues, name: str = "q") -> float:
    oldest = (await queues.read())[name].oldest_s
    assert oldest is not None
    return oldest


async def test_the_oldest_message_counts_waiting_or_in_flight(queue: MakeQueue, ages: Ages) -> None:
    q = queue()
    watched = ages(q=q)
    assert await age(watched) == 0, "an empty queue"
    before = time.monotonic()
    await q.send("first")
    await asyncio.sleep(0.1)
    await q.send("second")
    shown = await age(watched)
    assert 0.1 <= shown <= time.monotonic() - before + 0.01
    assert len(await q.take()) == 2
    assert await age(watched) >= shown, "still there, in flight"
    watched.close()


async def test_it_falls_when_the_oldest_is_deleted(
    queue: MakeQueue, ages: Ages, connect: Callable[..., object], endpoint: str
) -> None:
    q = queue()
    watched = ages(q=q)
    await q.send("first")
    (first,) = await q.take()
    await asyncio.sleep(0.5)
    await q.send("second")
    assert await age(watched) >= 0.5
    client = connect(endpoint, q.url)
    await client.delete([first["ReceiptHandle"]])  # type: ignore[attr-defined]
    assert await age(watched) < 0.5
    watched.close()


async def test_a_message_that_was_received_three_times_counts_no_more(queue: MakeQueue, ages: Ages) -> None:
    q = queue(visibility_s=0)
    watched = ages(q=q)
    await q.send("poison")
    await q.take()
    await q.take()
    assert await age(watched) > 0
    await q.take()
    assert await age(watched) == 0
    await asyncio.sleep(0.5)
    await q.send("fresh")
    assert 0 < await age(watched) < 0.5, "the next one"
    watched.close()


async def test_a_dead_letters_age_begins_when_it_was_moved(queue: MakeQueue, ages: Ages) -> None:
    dead = queue(visibility_s=0)
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 4})
    q = queue(visibility_s=0, RedrivePolicy=policy)
    watched = ages(q=q, dead=dead)
    await q.send("poison")
    for _ in range(4):
        await q.take()
    await asyncio.sleep(0.5)
    assert await q.take() == [], "it is moved when somebody asks again"
    assert 0 < await age(watched, "dead") < 0.5
    await dead.take()
    await dead.take()
    assert await age(watched, "dead") > 0, "receives begin anew too"
    watched.close()


async def test_the_attribute_is_returned_only_when_asked_for_by_name(queue: MakeQueue, endpoint: str) -> None:
    q = queue()
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION)
    client = session.client("sqs", endpoint_url=endpoint)
    found = await asyncio.to_thread(client.get_queue_attributes, QueueUrl=q.url, AttributeNames=["All"])
    assert [name for name in found["Attributes"] if "Age" in name] == []


@pytest_asyncio.fixture
async def other_endpoint() -> AsyncIterator[str]:
    """Yield an SQS endpoint without the attribute, as MiniStack itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        body = json.dumps({"Attributes": {"ApproximateNumberOfMessages": "7"}}).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_an_endpoint_that_does_not_tell_leaves_it_unknown(other_endpoint: str) -> None:
    queues = Queues(other_endpoint, {"q": f"{other_endpoint}/1/q"}, region=REGION)
    assert await queues.read() == {"q": QueueDepth(7, 0, 0, None)}
    queues.close()
