"""SQS: a queue that is written in batches, and the backlog of queues."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.meter import METER, SQS_UNIT_BYTES, batches

MESSAGE_BYTES: Final = 1_048_576
"""The largest message that a queue takes."""
REASON: Final = "reason"
"""Message attribute of a dead letter: why a consumer set it aside."""
_BATCH: Final = 10
LONGEST_WAIT_S: Final = 12 * 3600.0 - 900.0
"""A queue hides a message for 12 hours from its receipt on and refuses what would be longer: a quarter of an
hour is what an invocation may have taken by then."""
_GROUP = re.compile(r"[!-~]{1,128}")


class Queue:
    """One SQS queue, written in batches."""

    def __init__(self, url: str, sqs: Any | None = None) -> None:
        """The client is made on first use."""
        self._url = url
        self._sqs = sqs or LazyClient("sqs")

    def send(self, bodies: Sequence[str], groups: Sequence[str] = (), *, reason: str = "") -> list[int]:
        """Send the bodies, ten and at most 1 MiB a call, and return the positions that were NOT accepted.

        `groups` names, beside each body, whose it is: one's backlog does not hold back the others' messages.
        `reason` says why they are sent to a dead-letter queue, in the attribute REASON. Raises
        TransientError(queue_unavailable) when nothing could be sent at all, as do the methods below.
        """
        why = {"MessageAttributes": {REASON: {"DataType": "String", "StringValue": reason}}} if reason else {}
        refused: list[int] = []
        sent_any = not bodies
        last_error: Exception | None = None
        sizes = [len(body.encode()) for body in bodies]
        for batch in batches(sizes):
            entries = [
                {"Id": str(position), "MessageBody": bodies[position], **_group(groups, position), **why}
                for position in batch
            ]
            # The request itself is counted where it is made.
            METER.add({"sqs_units": max(0, sum(sizes[at] for at in batch) - 1) // SQS_UNIT_BYTES})
            try:
                answer = self._sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
            except (BotoCoreError, ClientError) as error:
                last_error = error
                refused.extend(batch)
                continue
            sent_any = True
            refused.extend(int(entry["Id"]) for entry in answer.get("Failed", []))
        if not sent_any:
            raise _unreachable() from last_error
        return refused

    def is_at(self, arn: str) -> bool:
        """Return whether account and name of that ARN are those of the queue's URL."""
        return arn.split(":")[-2:] == self._url.split("/")[-2:]

    def give_back(self, waits: Sequence[tuple[str, float]]) -> None:
        """Let received messages be seen again after so many seconds (at most LONGEST_WAIT_S) each."""
        for start in range(0, len(waits), _BATCH):
            entries = [
                {
                    "Id": str(at),
                    "ReceiptHandle": receipt,
                    "VisibilityTimeout": min(int(after_s + 0.5), int(LONGEST_WAIT_S)),
                }
                for at, (receipt, after_s) in enumerate(waits[start : start + _BATCH])
            ]
            self._call("change_message_visibility_batch", entries)

    def delete(self, receipts: Sequence[str]) -> None:
        """Delete received messages; one that is gone already is no error."""
        for start in range(0, len(receipts), _BATCH):
            part = receipts[start : start + _BATCH]
            entries = [{"Id": str(at), "ReceiptHandle": receipt} for at, receipt in enumerate(part)]
            self._call("delete_message_batch", entries)

    def _call(self, operation: str, entries: list[dict[str, Any]]) -> None:
        try:
            getattr(self._sqs, operation)(QueueUrl=self._url, Entries=entries)
        except (BotoCoreError, ClientError) as error:
            raise _unreachable() from error


def _unreachable() -> TransientError:
    return TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue cannot be reached.")


def _group(groups: Sequence[str], position: int) -> dict[str, str]:
    """Return the message group, in characters that SQS accepts; standard queues use it for fairness."""
    group = groups[position] if groups else ""
    if not group:
        return {}
    sound = _GROUP.fullmatch(group) is not None
    return {"MessageGroupId": group if sound else hashlib.sha256(group.encode()).hexdigest()}


_NUMBERS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class SqsBacklog:
    """The messages of one or several queues, in the order in which a message moves through them."""

    def __init__(self, urls: Sequence[str], sqs: Any | None = None) -> None:
        """The client is made on first use."""
        self._urls = tuple(urls)
        self._sqs = sqs or LazyClient("sqs")

    def messages(self) -> int:
        """Return how many there are, visible or not. Raises TransientError(queue_unavailable)."""
        return sum(map(self._in, self._urls))

    def _in(self, url: str) -> int:
        try:
            answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_NUMBERS))
        except (BotoCoreError, ClientError) as error:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue cannot be counted.") from error
        return sum(int(answer["Attributes"][name]) for name in _NUMBERS)
