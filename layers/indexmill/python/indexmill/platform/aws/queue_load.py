"""Load of a queue on AWS: its depth from SQS, and the age of its messages as workers noted it."""

from __future__ import annotations

import logging
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.aws.sqs_queue import SqsBacklog
from indexmill.platform.limits.enforcer import Backpressure
from indexmill.platform.limits.policy import PressureSettings
from indexmill.platform.limits.store import NOTE_KNOWN_S, Load, QueueAges
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock, SystemClock

_LOG: Final = logging.getLogger(__name__)
_HIGHER_FOR_S: Final = 15.0
"""A lower age replaces a higher one that was noted so long ago: fair queues deliver young messages too."""


def queue_pressure(
    stage: str, url: str, route: str, settings: PressureSettings, observability: Observability
) -> Backpressure:
    """Build the backpressure of the requests POST `route`, which add work to the queue of `stage`."""
    clock = SystemClock()
    queue = QueueLoad(url, stage, DynamoDbQueueAges(settings.state_table, clock))
    return Backpressure(queue.load, settings, clock, observability, routes=[("POST", route)])


class QueueLoad:
    """Load of one stage's queue."""

    def __init__(self, url: str, stage: str, ages: QueueAges, sqs: Any | None = None) -> None:
        """The client is made on first use."""
        self._backlog = SqsBacklog([url], sqs or LazyClient("sqs", quick=True))
        self._stage = stage
        self._ages = ages

    def load(self) -> Load:
        """Return messages that are visible, in flight or delayed, and the noted age."""
        depth = self._backlog.messages()
        # A worker's note may outlive the messages that it is about.
        return Load(depth, self._ages.oldest(self._stage) if depth else 0.0)


class DynamoDbQueueAges:
    """Items `pk` = "queue#<stage>" of the state table; its TTL attribute is `expires_at`."""

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = table
        self._clock = clock
        self._dynamodb = dynamodb or LazyClient("dynamodb", quick=True)

    def note(self, stage: str, age_s: float) -> None:
        """Note the age, unless a higher one was noted a moment ago."""
        now = self._clock.now().timestamp()
        item = {"age_s": age_s, "noted_at": now, "expires_at": int(now + 2 * NOTE_KNOWN_S)}
        numbers = {name: {"N": str(number)} for name, number in item.items()}
        try:
            self._dynamodb.put_item(
                TableName=self._table,
                Item={**_key(stage), **numbers},
                ConditionExpression="attribute_not_exists(pk) OR age_s <= :age OR noted_at < :before",
                ExpressionAttributeValues={
                    ":age": numbers["age_s"],
                    ":before": {"N": str(now - _HIGHER_FOR_S)},
                },
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                _LOG.warning("age of the queue cannot be noted", exc_info=True)
        except BotoCoreError:
            _LOG.warning("age of the queue cannot be noted", exc_info=True)

    def oldest(self, stage: str) -> float:
        """Return the noted age, 0 for none or an old one; the table deletes expired items late."""
        try:
            item = self._dynamodb.get_item(TableName=self._table, Key=_key(stage)).get("Item")
            if item is None or float(item["noted_at"]["N"]) < self._clock.now().timestamp() - NOTE_KNOWN_S:
                return 0.0
            return float(item["age_s"]["N"])
        except (BotoCoreError, ClientError, KeyError, ValueError):
            _LOG.warning("age of the queue cannot be read", exc_info=True)
            return 0.0


def _key(stage: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"queue#{stage}"}}
