"""Backlog of SQS queues: visible, in flight and delayed messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.clients import LazyClient

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
