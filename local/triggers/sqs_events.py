"""Conversion between SQS and Lambda: received messages to events, a function's reply to deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

MAX_EVENT_BYTES = 6 * 1024 * 1024
"""Lambda's limit for the payload of a synchronous invocation."""
_EMPTY_EVENT = len(b'{"Records":[]}')

Message = dict[str, Any]
"""Message as in a ReceiveMessage response."""


def record(message: Message, queue_arn: str, region: str) -> dict[str, Any]:
    """Return one message as an element of `Records` of a Lambda event."""
    attributes = message.get("MessageAttributes") or {}
    made: dict[str, Any] = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes") or {},
        "messageAttributes": {name: _attribute(value) for name, value in attributes.items()},
        "md5OfBody": message["MD5OfBody"],
    }
    if attributes and "MD5OfMessageAttributes" in message:
        made["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return made | {"eventSource": "aws:sqs", "eventSourceARN": queue_arn, "awsRegion": region}


def _attribute(value: dict[str, Any]) -> dict[str, Any]:
    made = {"stringListValues": [], "binaryListValues": [], "dataType": value.get("DataType", "String")}
    if "StringValue" in value:
        return {"stringValue": value["StringValue"], **made}
    return {"binaryValue": value.get("BinaryValue", ""), **made}


def events(
    messages: Sequence[Message], queue_arn: str, region: str, limit: int = MAX_EVENT_BYTES
) -> Iterator[tuple[list[Message], bytes]]:
    """Yield the batch as (messages, event document), split so that no document exceeds `limit` bytes."""
    batch: list[Message] = []
    records: list[bytes] = []
    size = _EMPTY_EVENT
    for message in messages:
        made = json.dumps(record(message, queue_arn, region), ensure_ascii=False, separators=(",", ":"))
        encoded = made.encode("utf-8", "replace")
        if batch and size + len(encoded) + 1 > limit:
            yield batch, _event(records)
            batch, records, size = [], [], _EMPTY_EVENT
        batch.append(message)
        records.append(encoded)
        size += len(encoded) + 1
    if batch:
        yield batch, _event(records)


def _event(records: Sequence[bytes]) -> bytes:
    return b'{"Records":[' + b",".join(records) + b"]}"


def failed_ids(reply: bytes, message_ids: Sequence[str]) -> frozenset[str]:
    """Return the ids of the messages that a function with ReportBatchItemFailures failed.

    As on AWS: nothing, null, or no entries mean success of the whole batch; an entry without a known
    identifier or a malformed reply means failure of the whole batch.
    """
    every = frozenset(message_ids)
    try:
        content = json.loads(reply) if reply.strip() else None
    except ValueError:
        return every
    if content in (None, "", [], {}):
        return frozenset()
    if not isinstance(content, dict):
        return every
    entries = content.get("batchItemFailures")
    if entries is None:
        return frozenset()
    if not isinstance(entries, list):
        return every
    named: list[Any] = [entry.get("itemIdentifier") if isinstance(entry, dict) else None for entry in entries]
    return frozenset(named) if all(isinstance(name, str) and name in every for name in named) else every
