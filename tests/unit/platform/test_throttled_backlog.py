"""A thousand healthy messages behind a function that stays throttled: none is given up."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import pytest

from indexmill.contracts.messages import ScrapeTask, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from tests.support.events import FakeContext, sqs_event
from tests.twins.clock import FrozenClock
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryDeliveryLog

VISIBILITY_S, BATCH_S, MAX_RECEIVES = 360.0, 0.5, 100


class Backlog(InMemoryQueue):
    """A queue in simulated time: messages by the moment at which they are seen again."""

    def __init__(self, count: int, clock: FrozenClock) -> None:
        super().__init__()
        self.clock = clock
        self.first = int(clock.now().timestamp() * 1000)
        self.receives = dict.fromkeys((f"m{at}" for at in range(count)), 0)
        self.visible = [(clock.monotonic(), random.random(), name) for name in self.receives]
        heapq.heapify(self.visible)

    def receive(self) -> list[str]:
        taken: list[str] = []
        self.clock.tick(max(0.0, self.visible[0][0] - self.clock.monotonic()))
        while self.visible and len(taken) < 10 and self.visible[0][0] <= self.clock.monotonic():
            name = heapq.heappop(self.visible)[2]
            self.receives[name] += 1
            taken.append(name)
        return taken

    def hide(self, name: str, seconds: float) -> None:
        heapq.heappush(self.visible, (self.clock.monotonic() + seconds, random.random(), name))

    def is_at(self, arn: str) -> bool:
        return bool(arn)

    def give_back(self, waits: Sequence[tuple[str, float]]) -> None:
        for name, seconds in waits:
            self.hide(name, round(seconds))


@pytest.mark.fault("F75")
@pytest.mark.parametrize("throttled", [0.5, 0.8])
def test_a_throttled_backlog_is_processed_whole(throttled: float) -> None:
    random.seed(7)
    clock, finished, poison = FrozenClock(), 0, 0
    refused = attempted = 0
    queue = Backlog(1_000, clock)

    def handle(deliveries: Sequence[Delivery[ScrapeTask]]) -> list[Outcome]:
        nonlocal poison
        poison += sum(each.is_poison for each in deliveries)
        clock.tick(BATCH_S)
        return [Done()] * len(deliveries)

    batch = SqsBatch(
        ScrapeTask,
        handle,
        source=queue,
        dead=InMemoryQueue(),
        observability=Observability("test", level="CRITICAL"),
        delivery_log=InMemoryDeliveryLog(clock),
        clock=clock,
    )
    while queue.visible:
        names = queue.receive()
        attempted += 1
        if random.random() < throttled:
            refused += 1
            for name in names:
                queue.hide(name, VISIBILITY_S)
            continue
        event = sqs_event(*(write(ScrapeTask(message_id=name, url="u")) for name in names))
        for record, name in zip(event["Records"], names, strict=True):
            record |= {"messageId": name, "receiptHandle": name}
            record["attributes"]["ApproximateReceiveCount"] = str(queue.receives[name])
            record["attributes"]["ApproximateFirstReceiveTimestamp"] = str(queue.first)
        finished += len(names) - len(batch(event, FakeContext())["batchItemFailures"])
    assert (finished, poison) == (1_000, 0)
    assert max(queue.receives.values()) < MAX_RECEIVES
    assert refused / attempted == pytest.approx(throttled, abs=0.05), "it was throttled to the end"
