"""Contents of queues, buckets and tables: text by the kind of place, a space, and its name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from local.faults.cloud import Cloud

CONTENT: Final = ("raw/", "text/", "chunks/")
"""Prefixes of the bucket's objects that may contain a document."""
_NEWEST: Final = 20
"""Number of newest objects to read there: reading all of them after every test takes too long."""


def contents(cloud: Cloud, depths: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Return all texts of an idle stack with these queue depths; messages are read without being removed."""
    yield "messages sent", cloud.control.sent()
    for queue in (name for name, count in depths.items() if count):
        yield from messages(cloud, queue)
    yield from items(cloud)
    yield from objects(cloud)


def messages(cloud: Cloud, queue: str) -> Iterator[tuple[str, str]]:
    """Return bodies and attributes of up to ten messages of a queue."""
    answer = cloud.sqs.receive_message(
        QueueUrl=cloud.queues[queue],
        MaxNumberOfMessages=10,
        VisibilityTimeout=0,
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
    )
    for message in answer.get("Messages", []):
        parts = {name: message.get(name) for name in ("Body", "Attributes", "MessageAttributes")}
        yield f"messages {queue}", json.dumps(parts, default=str)


def items(cloud: Cloud) -> Iterator[tuple[str, str]]:
    """Return the items of the state table."""
    more: dict[str, Any] = {}
    while True:
        answer = cloud.dynamodb.scan(TableName=cloud.info["resources"]["StateTable"], **more)
        for item in answer["Items"]:
            yield f"items {item['pk'].get('S')}", json.dumps(item, default=str)
        if not answer.get("LastEvaluatedKey"):
            return
        more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def objects(cloud: Cloud) -> Iterator[tuple[str, str]]:
    """Return the keys of all objects; all contents that are no document, and the newest of those that are."""
    bucket = cloud.info["resources"]["ContentBucket"]
    listed = [
        each
        for page in cloud.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        for each in page.get("Contents", [])
    ]
    yield "objects keys", "\n".join(each["Key"] for each in listed)
    content = [each for each in listed if each["Key"].startswith(CONTENT)]
    newest = sorted(content, key=lambda each: each["LastModified"])[-_NEWEST:]
    for each in [each for each in listed if each not in content] + newest:
        found = cloud.s3.get_object(Bucket=bucket, Key=each["Key"])
        kind = "content" if each in newest else "objects"
        head = json.dumps([found["Metadata"], found["ContentType"]])
        yield f"{kind} {each['Key']}", head + found["Body"].read().decode("utf-8", "replace")
