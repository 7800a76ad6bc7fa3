"""Effect of a reply on a batch, and the function's event."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from local.template.spec import InvokeResult
from local.triggers.sqs import SqsEventSource
from local.triggers.sqs_events import events, failed_ids
from tests.integration.triggers.harness import REGION, Queue, Record, Recorder, failures, until

Start = Callable[..., Awaitable[SqsEventSource]]
MakeQueue = Callable[..., Queue]
ALL, NONE = {"a", "b", "c"}, set[str]()


def _reply(content: Any) -> InvokeResult:
    return InvokeResult(json.dumps(content).encode())


def _named(records: list[Record], *bodies: str) -> list[str]:
    return [r["messageId"] for r in records if r["body"] in bodies]


REPLIES: dict[str, tuple[Callable[[list[Record]], InvokeResult], set[str]]] = {
    "null": (lambda _: _reply(None), NONE),
    "no bytes": (lambda _: InvokeResult(b""), NONE),
    "empty string": (lambda _: _reply(""), NONE),
    "empty document": (lambda _: _reply({}), NONE),
    "empty list of failures": (lambda _: failures([]), NONE),
    "null instead of failures": (lambda _: _reply({"batchItemFailures": None}), NONE),
    "a document about something else": (lambda _: _reply({"processed": 3}), NONE),
    "one failure": (lambda r: failures(_named(r, "b")), {"b"}),
    "two failures": (lambda r: failures(_named(r, "a", "c")), {"a", "c"}),
    "the same failure twice": (lambda r: failures(_named(r, "b") * 2), {"b"}),
    "null identifier": (lambda _: failures([None]), ALL),
    "empty identifier": (lambda _: failures([""]), ALL),
    "unknown identifier": (lambda _: failures(["nobody"]), ALL),
    "a known and an unknown one": (lambda r: failures([*_named(r, "a"), "nobody"]), ALL),
    "identifier of another type": (lambda _: failures([7]), ALL),
    "wrong key": (lambda r: _reply({"batchItemFailures": [{"id": r[0]["messageId"]}]}), ALL),
    "failures are strings": (lambda r: _reply({"batchItemFailures": _named(r, "a")}), ALL),
    "failures are no list": (lambda _: _reply({"batchItemFailures": "a"}), ALL),
    "not JSON": (lambda _: InvokeResult(b"{batchItemFailures"), ALL),
    "another kind of document": (lambda _: _reply("done"), ALL),
    "function error": (lambda _: InvokeResult(b'{"errorMessage":"x"}', "Unhandled"), ALL),
}


async def test_each_batch_is_deleted_by_a_request_of_its_own(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    before = q.requests("DeleteMessageBatch")
    source = await start_source(q, invoker)
    for sent in range(1, 4):
        await q.send(f"message {sent}")
        await until(lambda number=sent: len(invoker.bodies) == number)
    await source.stop()
    assert len(invoker.batches) == 3
    assert q.requests("DeleteMessageBatch") - before == 3


@pytest.mark.fault("F21")
@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_with_item_failures_reported_settles_the_rest(
    name: str, queue: MakeQueue, start_source: Start
) -> None:
    reply, left = REPLIES[name]

    async def answer(records: list[Record]) -> InvokeResult:
        return reply(records)

    q, invoker = queue(), Recorder(answer)
    await q.send("a", "b", "c")
    source = await start_source(q, invoker, report_batch_item_failures=True)
    await until(lambda: len(invoker.bodies) == 3)
    await until(lambda: source.stats().in_flight == 0)
    await source.stop()
    assert await q.counts() == (0, len(left))
    for record in invoker.batches[0]:
        await q.hide(record["receiptHandle"], 0) if record["body"] in left else None
    assert {m["Body"] for m in await q.take()} == left


async def test_a_reply_is_ignored_when_item_failures_are_not_reported(
    queue: MakeQueue, start_source: Start
) -> None:
    async def answer(records: list[Record]) -> InvokeResult:
        return failures(_named(records, "a"))

    q, invoker = queue(), Recorder(answer)
    await q.send("a", "b", "c")
    await start_source(q, invoker)
    await until(q.is_empty)
    assert set(invoker.bodies) == ALL


async def test_a_function_error_leaves_the_batch_when_item_failures_are_not_reported(
    queue: MakeQueue, start_source: Start
) -> None:
    async def answer(_records: list[Record]) -> InvokeResult:
        return InvokeResult(b"{}", "Handled")

    q = queue()
    await q.send("a", "b")
    source = await start_source(q, Recorder(answer))
    await until(lambda: source.stats().function_errors == 1)
    assert await q.counts() == (0, 2)


async def test_records_are_as_lambda_gives_them(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    attributes = {
        "trace": {"DataType": "String", "StringValue": "tr-1"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }
    await q.send('{"x":"für"}', MessageAttributes=attributes)
    await start_source(q, invoker, batch_size=1)
    await until(q.is_empty)
    record = invoker.batches[0][0]
    system = record["attributes"]
    assert set(system) >= {
        "ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"
    }  # fmt: skip
    assert system["ApproximateReceiveCount"] == "1"
    assert all(isinstance(value, str) for value in system.values())
    assert record["body"] == '{"x":"für"}'
    assert record["messageAttributes"] == {
        "trace": {
            "stringValue": "tr-1", "stringListValues": [], "binaryListValues": [], "dataType": "String"
        },
        "raw": {
            "binaryValue": base64.b64encode(b"\x00\x01").decode(),
            "stringListValues": [], "binaryListValues": [], "dataType": "Binary",
        },
    }  # fmt: skip
    assert len(record["md5OfBody"]) == len(record["md5OfMessageAttributes"]) == 32
    fixed = (record["eventSource"], record["eventSourceARN"], record["awsRegion"])
    assert fixed == ("aws:sqs", q.arn, REGION)
    assert invoker.functions == {"Function"}


async def test_an_event_over_six_megabytes_is_split(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    bodies = [str(i) * 900_000 for i in range(8)]
    for body in bodies:
        await q.send(body)
    await start_source(q, invoker, window_s=0.3)
    await until(q.is_empty)
    assert sorted(invoker.bodies) == bodies
    assert len(invoker.batches) == 2
    assert max(len(event) for event in invoker.events) <= 6 * 1024 * 1024


def test_a_split_keeps_order_and_a_single_large_message_goes_alone() -> None:
    made = [
        {"MessageId": str(i), "ReceiptHandle": "h", "Body": "x" * size, "MD5OfBody": "m"}
        for i, size in enumerate((10, 900, 10, 10))
    ]
    parts = [[m["MessageId"] for m in batch] for batch, _ in events(made, "arn", REGION, limit=600)]
    assert parts == [["0"], ["1"], ["2", "3"]]


@pytest.mark.fault("F21")
@pytest.mark.parametrize("reply", [b"0", b"false", b"[1]", b"\xff", b'{"batchItemFailures": {}}'])
def test_a_reply_that_is_not_understood_fails_the_batch(reply: bytes) -> None:
    assert failed_ids(reply, ["1", "2"]) == {"1", "2"}
