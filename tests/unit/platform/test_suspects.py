"""Redelivered messages, and suspects that may crash their process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from indexmill.contracts.messages import ScrapeTask, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Poison, Retry, Wait
from indexmill.platform.consumer.delivery_log import DeliveryRecord
from indexmill.platform.consumer.sqs_batch import Received, SqsBatch
from indexmill.platform.observability import Observability
from tests.support.events import FakeContext, sqs_event
from tests.twins.clock import FrozenClock
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryDeliveryLog

DAY_S = 86_400
GOOD = write(ScrapeTask(message_id="1", url="/a"))


class Killed(BaseException):
    """Represents the end of the process: nothing after it runs."""


class Worker:
    """A batch with its twins; `outcomes` are by path, Done by default, and /kill ends the process."""

    def __init__(self) -> None:
        self.source, self.dead = InMemoryQueue(), InMemoryQueue()
        self.log = InMemoryDeliveryLog()
        self.clock = FrozenClock()
        self.outcomes: dict[str, Outcome] = {}
        self.calls: list[list[Delivery[ScrapeTask]]] = []
        self.batch = SqsBatch(
            ScrapeTask,
            self._handle,
            source=self.source,
            dead=self.dead,
            observability=Observability("test", level="CRITICAL"),
            delivery_log=self.log,
            clock=self.clock,
        )

    def _handle(self, deliveries: Sequence[Delivery[ScrapeTask]]) -> list[Outcome]:
        self.calls.append(list(deliveries))
        paths = [delivery.message.url for delivery in deliveries]
        if "/kill" in paths and not any(each.is_poison for each in deliveries):
            raise Killed
        return [self.outcomes.get(path, Done()) for path in paths]

    def deliver(self, received: dict[str, int]) -> list[str]:
        """Deliver one message per path, received so often; return the paths that stay."""
        paths = list(received)
        event: dict[str, Any] = sqs_event(*(write(ScrapeTask(message_id=p, url=p)) for p in paths))
        for record, path in zip(event["Records"], paths, strict=True):
            record |= {"messageId": path, "receiptHandle": f"r{path}"}
            record["attributes"] = {"ApproximateReceiveCount": str(received[path])}
        failed = self.batch(event, FakeContext())["batchItemFailures"]
        return [item["itemIdentifier"] for item in failed]

    @property
    def handled(self) -> list[list[str]]:
        """Paths by call of the use case."""
        return [[each.message.url for each in call] for call in self.calls]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_the_first_delivery_asks_for_no_note_and_writes_none(worker: Worker) -> None:
    assert worker.deliver({"/a": 1, "/b": 1}) == []
    assert (worker.log.reads, worker.log.writes, worker.source.deleted) == (0, 0, [])


def test_a_batch_of_give_backs_is_noted_in_one_call(worker: Worker) -> None:
    worker.outcomes = {"/a": Retry(1, "http_503"), "/b": Wait(2, "deadline")}
    assert worker.deliver({"/a": 1, "/b": 1, "/c": 1}) == ["/a", "/b"]
    assert worker.log.writes == 1
    assert worker.log.read(["/a", "/b", "/c"]) == {
        "/a": DeliveryRecord(receives=1, tries=1, last_error="http_503"),
        "/b": DeliveryRecord(receives=1),
    }


def test_tries_are_counted_and_waits_are_none(worker: Worker) -> None:
    for count, outcome in enumerate([Wait(1, "open"), Retry(1, "x"), Wait(1, "open"), Retry(1, "y")], 1):
        worker.outcomes = {"/a": outcome}
        worker.deliver({"/a": count})
    worker.deliver({"/a": 5})
    seen = [(call[0].tries, call[0].crashes, call[0].last_error) for call in worker.calls]
    assert seen == [(1, 0, None), (1, 0, None), (2, 0, "x"), (2, 0, "x"), (3, 0, "y")]


def test_a_suspect_is_handled_last_and_alone(worker: Worker) -> None:
    worker.outcomes = {"/late": Retry(3, "x")}
    assert worker.deliver({"/suspect": 2, "/a": 1, "/late": 1}) == ["/late"]
    assert worker.handled == [["/a", "/late"], ["/suspect"]]
    assert worker.source.deleted == ["r/a"]
    assert worker.source.given_back == [("r/late", 3)]


def test_the_others_are_safe_before_the_suspect_begins(worker: Worker) -> None:
    worker.outcomes = {"/late": Retry(3, "x")}
    with pytest.raises(Killed):
        worker.deliver({"/kill": 2, "/a": 1, "/late": 1, "/other": 2})
    assert worker.source.deleted == ["r/a"]
    assert sorted(worker.source.given_back) == [("r/late", 3), ("r/other", 1.0)]
    assert worker.log.read(["/late"])["/late"].tries == 1


def test_of_many_suspects_the_one_that_came_most_often_goes_first(worker: Worker) -> None:
    assert sorted(worker.deliver({"/a": 2, "/b": 9, "/c": 3})) == ["/a", "/c"]
    assert worker.handled == [["/b"]]
    assert sorted(worker.source.given_back) == [("r/a", 2.0), ("r/c", 1.0)]


@pytest.mark.fault("F19")
def test_a_message_that_kills_its_process_fails_after_three_crashes(worker: Worker) -> None:
    for count in (1, 2, 3):
        with pytest.raises(Killed):
            worker.deliver({"/kill": count, "/a": 1})
    assert worker.deliver({"/kill": 4, "/b": 1}) == []
    last = worker.calls[-1]
    assert [(each.message.url, each.crashes, each.is_poison) for each in last] == [
        ("/kill", 3, True), ("/b", 0, False),
    ]  # fmt: skip


def test_receives_without_an_invocation_are_no_crashes(worker: Worker) -> None:
    """A throttled function, or one that does not even start, burns receives."""
    worker.outcomes = {"/a": Retry(1, "x")}
    for count in (30, 60, 99):
        worker.deliver({"/a": count})
    assert [call[0].crashes for call in worker.calls] == [1, 1, 1]
    assert [call[0].tries for call in worker.calls] == [1, 2, 3]


def test_a_throttled_message_that_crashes_once_is_not_given_up(worker: Worker) -> None:
    with pytest.raises(Killed):
        worker.deliver({"/kill": 50})
    with pytest.raises(Killed):
        worker.deliver({"/kill": 60})
    assert [call[0].crashes for call in worker.calls] == [1, 2]


def test_losing_the_log_gives_more_tries_and_no_poison(worker: Worker) -> None:
    worker.outcomes = {"/a": Retry(1, "x")}
    worker.deliver({"/a": 1})
    worker.log.client.items.clear()
    worker.deliver({"/a": 40})
    worker.log.unavailable = True
    worker.deliver({"/a": 95})
    assert [(call[0].tries, call[0].crashes) for call in worker.calls] == [(1, 0), (1, 1), (1, 1)]


def test_a_try_that_runs_out_of_time_is_recorded_as_timed_out(worker: Worker) -> None:
    record = DeliveryRecord(1, 1, 1, last_error="http_503")
    assert record.before_lone_try().after_receive(3).last_error == "http_503"
    cut = record.after_timeout().after_receive(3)
    assert (cut.crashes, cut.last_error, cut.receives) == (2, "timed_out", 2)
    assert cut.before_lone_try().after_receive(4).last_error is None


def test_poison_and_unreadable_ones_leave_before_a_suspect_is_tried(worker: Worker) -> None:
    worker.outcomes = {"/p": Poison("no")}
    with pytest.raises(Killed):
        worker.deliver({"/p": 1, "/kill": 2})
    assert (len(worker.dead.bodies), worker.source.deleted) == (1, ["r/p"])


def test_what_cannot_be_given_back_or_deleted_stays_for_the_queue(worker: Worker) -> None:
    worker.source.unavailable = True
    worker.outcomes = {"/b": Retry(1, "x")}
    assert worker.deliver({"/a": 1, "/b": 1, "/suspect": 2}) == ["/b"]
    assert worker.handled == [["/a", "/b"], ["/suspect"]]


def test_waits_grow_with_the_time_that_a_message_has_been_coming_back(worker: Worker) -> None:
    event = sqs_event("{}", GOOD, receive_count=21)
    began = int(worker.clock.now().timestamp() - 3600) * 1000
    for record in event["Records"]:
        record["attributes"]["ApproximateFirstReceiveTimestamp"] = str(began)
    worker.log.write({"m1": DeliveryRecord(receives=20)})
    worker.outcomes = {"/a": Wait(2, "early")}
    worker.batch(event, FakeContext())
    ((_, waited),) = worker.source.given_back
    assert 720 <= waited <= 900
    assert worker.calls[0][0].wait(1) >= 720


@pytest.mark.parametrize("wait_s", [1.0, 30.0, 300.0])
def test_an_outage_as_long_as_the_queues_memory_takes_less_than_a_hundred_receives(wait_s: float) -> None:
    random.seed(1)
    count, age_s = 1, 0.0
    while age_s < 14 * DAY_S:
        received = Received("m", "r", "", count, str(1_000))
        delivery = Delivery(None, count, 0, least_wait_s=received.least_wait(1 + age_s))
        age_s += delivery.wait(wait_s)
        count += 1
    assert count < 100
