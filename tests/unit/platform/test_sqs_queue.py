"""Messages of a batch that SQS refuses are reported by position, across batches."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from indexmill.contracts.errors import TransientError
from indexmill.platform.aws.sqs_queue import Queue

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/queue"


def stubbed() -> tuple[Queue, Stubber]:
    make: Any = boto3.client
    sqs = make("sqs", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    return Queue(URL, sqs), Stubber(sqs)


def answer(taken: list[int], failed: list[int]) -> dict[str, Any]:
    entry = {"MessageId": "m", "MD5OfMessageBody": "0" * 32}
    error = {"SenderFault": False, "Code": "ServiceUnavailable"}
    return {
        "Successful": [{"Id": str(at), **entry} for at in taken],
        "Failed": [{"Id": str(at), **error} for at in failed],
    }


ASKED = {"QueueUrl": URL, "Entries": ANY}


@pytest.mark.fault("F25")
def test_only_refused_messages_are_returned() -> None:
    queue, stub = stubbed()
    stub.add_response("send_message_batch", answer([0, 1, 3, 4, 5, 6, 7, 8], [2, 9]), ASKED)
    stub.add_response("send_message_batch", answer([10], [11]), ASKED)
    with stub:
        assert queue.send([f"body {at}" for at in range(12)]) == [2, 9, 11]
    stub.assert_no_pending_responses()


@pytest.mark.fault("F25")
def test_a_batch_that_failed_as_a_whole_leaves_the_others_sent() -> None:
    queue, stub = stubbed()
    stub.add_client_error("send_message_batch", "ThrottlingException", http_status_code=400)
    stub.add_response("send_message_batch", answer([10, 11], []), ASKED)
    with stub:
        assert queue.send([f"body {at}" for at in range(12)]) == list(range(10))


def test_nothing_sent_at_all_is_an_outage() -> None:
    queue, stub = stubbed()
    stub.add_client_error("send_message_batch", "ServiceUnavailable", http_status_code=503)
    with stub, pytest.raises(TransientError) as unavailable:
        queue.send(["body"])
    assert unavailable.value.code == "queue_unavailable"


def test_no_wait_ends_later_than_twelve_hours_after_the_receipt() -> None:
    """SQS counts from the receipt and refuses what is longer: the message would be seen again in minutes."""
    longest_invocation_s = 900
    queue, stub = stubbed()
    entry = {"Id": "0", "ReceiptHandle": "r", "VisibilityTimeout": 12 * 3600 - longest_invocation_s}
    answered = {"Successful": [{"Id": "0"}], "Failed": []}
    stub.add_response("change_message_visibility_batch", answered, {"QueueUrl": URL, "Entries": [entry]})
    with stub:
        queue.give_back([("r", 12 * 3600.0)])
    stub.assert_no_pending_responses()


@pytest.mark.shows("S33")
@pytest.mark.parametrize(
    ("arn", "same"),
    [
        ("arn:aws:sqs:eu-west-1:123456789012:queue", True),
        ("arn:aws:sqs:eu-west-1:123456789012:queue2", False),
        ("arn:aws:sqs:eu-west-1:210987654321:queue", False),
        ("queue", False),
    ],
)
def test_a_queue_knows_its_arn_by_account_and_name(arn: str, same: bool) -> None:
    assert stubbed()[0].is_at(arn) is same
