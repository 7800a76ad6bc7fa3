"""Load of a queue on AWS: its depth from SQS, and the age of its messages as workers noted it."""

from __future__ import annotations

from typing import Any

from indexmill.platform.aws.clients import LazyClient
from indexmill.platform.aws.sqs_queue import SqsBacklog
from indexmill.platform.limits.enforcer import Backpressure
from indexmill.platform.limits.policy import PressureSettings
from indexmill.platform.limits.store import Load, QueueAges
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock


def queue_pressure(
    stage: str, url: str, route: str, settings: PressureSettings, observability: Observability
) -> Backpressure:
    """Build the backpressure of the requests POST `route`, which add work to the queue of `stage`."""
    clock = SystemClock()
    queue = QueueLoad(url, stage, QueueAges(settings.state_table, clock))
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
