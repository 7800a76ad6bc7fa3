"""What stands in queues, buckets and tables: text by the kind of place, a space, and its name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from local.faults.cloud import Cloud

CONTENT: Final = ("raw/", "text/", "chunks/")
"""Where the bucket's objects may hold a document."""
_LOOKED_INTO: Final = 20
"""Of the objects there, so many newest are read: reading all of them after every test takes too long."""


def told(cloud: Cloud, depths: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Everything, of a quiet stack with these depths of queues: what lies in them is looked at and stays."""
    yield "messages sent", cloud.control.sent()
    for queue in (name for name, count in depths.items() if count):
        yield from messages(cloud, queue)
    yield from items(cloud)
    yield from objects(cloud)


def messages(cloud: Cloud, queue: str) -> Iterator[tuple[str, str]]:
    """Bodies and attributes of up to ten messages that lie in a queue."""
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
    """Items of the state table."""
    more: dict[str, Any] = {}
    while True:
        answer = cloud.dynamodb.scan(TableName=cloud.info["resources"]["StateTable"], **more)
        for item in answer["Items"]:
            yield f"items {item['pk'].get('S')}", json.dumps(item, default=str)
        if not answer.get("LastEvaluatedKey"):
            return
        more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def objects(cloud: Cloud) -> Iterator[tuple[str, str]]:
    """Keys of all objects; all of those that are not content, and the newest of those that are."""
    bucket = cloud.info["resources"]["ContentBucket"]
    listed = [
        each
        for page in cloud.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        for each in page.get("Contents", [])
    ]
    yield "objects keys", "\n".join(each["Key"] for each in listed)
    content = [each for each in listed if each["Key"].startswith(CONTENT)]
    newest = sorted(content, key=lambda each: each["LastModified"])[-_LOOKED_INTO:]
    for each in [each for each in listed if each not in content] + newest:
        found = cloud.s3.get_object(Bucket=bucket, Key=each["Key"])
        kind = "content" if each in newest else "objects"
        head = json.dumps([found["Metadata"], found["ContentType"]])
        yield f"{kind} {each['Key']}", head + found["Body"].read().decode("utf-8", "replace")
