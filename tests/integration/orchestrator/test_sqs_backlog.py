"""Backlog of real queues."""

from __future__ import annotations

import uuid
from typing import Any

import boto3
import pytest

from indexmill.contracts.errors import TransientError
from indexmill.platform.aws.sqs_queue import SqsBacklog
from local.backends.ministack import MiniStack
from tests.support.ministack import REGION

pytestmark = pytest.mark.integration


def sqs_at(endpoint: str) -> Any:
    make: Any = boto3.client
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return make("sqs", endpoint_url=endpoint, region_name=REGION, **keys)


def test_messages_count_wherever_they_are_in_a_queue(ministack: MiniStack) -> None:
    sqs = sqs_at(ministack.endpoint)
    names = [f"backlog-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    first, second = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in names)
    backlog = SqsBacklog([first, second], sqs)
    assert backlog.messages() == 0
    for _ in range(3):
        sqs.send_message(QueueUrl=first, MessageBody="now")
    sqs.send_message(QueueUrl=first, MessageBody="later", DelaySeconds=600)
    sqs.send_message(QueueUrl=second, MessageBody="dead")
    assert backlog.messages() == 5
    (taken,) = sqs.receive_message(QueueUrl=first, MaxNumberOfMessages=1)["Messages"]
    assert backlog.messages() == 5
    sqs.delete_message(QueueUrl=first, ReceiptHandle=taken["ReceiptHandle"])
    assert backlog.messages() == 4


def test_an_unavailable_queue_is_not_counted_as_empty() -> None:
    unavailable = "http://127.0.0.1:1"
    with pytest.raises(TransientError) as caught:
        SqsBacklog([f"{unavailable}/0/q"], sqs_at(unavailable)).messages()
    assert caught.value.code == "queue_unavailable"
