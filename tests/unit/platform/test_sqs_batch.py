"""Records in, AWS's partial batch response out."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from indexmill.contracts.errors import Defect
from indexmill.contracts.messages import ScrapeTask, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Poison, Retry
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from tests.support.events import FakeContext, sqs_event
from tests.twins.clock import FrozenClock
from tests.twins.queues import InMemoryQueue

GOOD = write(ScrapeTask(message_id="1", job_id="j", url="https://example.com/"))


class Scripted:
    """A use case with configured outcomes that records its deliveries."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = outcomes
        self.seen: list[Delivery[ScrapeTask]] = []

    def __call__(self, deliveries: Sequence[Delivery[ScrapeTask]]) -> list[Outcome]:
        self.seen.extend(deliveries)
        return list(self.outcomes)


def run(use_case: Scripted, *bodies: str) -> tuple[list[str], InMemoryQueue, InMemoryQueue]:
    source, dead = InMemoryQueue(), InMemoryQueue()
    observability = Observability("test", level="CRITICAL")
    batch = SqsBatch(
        ScrapeTask, use_case, source=source, dead=dead, observability=observability, clock=FrozenClock()
    )
    reply = batch(sqs_event(*bodies, receive_count=3), FakeContext())
    return [item["itemIdentifier"] for item in reply["batchItemFailures"]], source, dead


def test_done_leaves_and_retry_stays_with_its_wait() -> None:
    failures, source, _ = run(Scripted(Done(), Retry(7.2, "later")), GOOD, GOOD)
    assert failures == ["m1"]
    assert source.given_back == [("r1", 7.2)]


def test_the_use_case_sees_receive_count_and_deadline() -> None:
    use_case = Scripted(Done())
    run(use_case, GOOD)
    (delivery,) = use_case.seen
    assert delivery.receive_count == 3
    assert delivery.deadline == 1000.0 + 60 - 2


@pytest.mark.fault("F19")
def test_an_unreadable_record_goes_to_the_dead_letters_alone() -> None:
    use_case = Scripted(Done())
    failures, _, dead = run(use_case, "{", GOOD)
    assert failures == []
    assert dead.bodies == ["{"]
    assert len(use_case.seen) == 1


@pytest.mark.fault("F18")
def test_a_newer_version_waits_for_newer_code() -> None:
    newer = GOOD.replace("scrape.v1", "scrape.v99").replace('"url"', '"address"')
    failures, source, dead = run(Scripted(), newer)
    assert failures == ["m0"]
    assert source.given_back == [("r0", 60.0)]
    assert dead.bodies == []


def test_poison_that_cannot_be_set_aside_stays() -> None:
    observability = Observability("test", level="CRITICAL")
    dead = InMemoryQueue()
    dead.unavailable = True
    batch = SqsBatch(
        ScrapeTask, Scripted(Poison("no")), source=InMemoryQueue(), dead=dead, observability=observability
    )
    assert batch(sqs_event(GOOD), FakeContext()) == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


@pytest.mark.shows("S33")
@pytest.mark.parametrize(
    "arn", ["arn:aws:sqs:eu-west-1:000000000000:other", "arn:aws:sqs:eu-west-1:1:queue", ""]
)
def test_records_of_another_queue_reach_no_use_case(arn: str) -> None:
    event = sqs_event(GOOD, GOOD)
    event["Records"][1]["eventSourceARN"] = arn
    use_case, source = Scripted(Done(), Done()), InMemoryQueue()
    batch = SqsBatch(
        ScrapeTask, use_case, source=source, dead=InMemoryQueue(), observability=Observability("test")
    )
    with pytest.raises(Defect, match="another queue"):
        batch(event, FakeContext())
    assert (use_case.seen, source.deleted, source.given_back) == ([], [], [])


def test_an_empty_event_is_no_failure() -> None:
    assert run(Scripted())[0] == []


def test_what_is_given_back_is_logged_with_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    source, dead = InMemoryQueue(), InMemoryQueue()
    batch = SqsBatch(
        ScrapeTask,
        Scripted(Retry(7.2, "dns_error")),
        source=source,
        dead=dead,
        observability=Observability("given-back"),
        clock=FrozenClock(),
    )
    batch(sqs_event(GOOD), FakeContext())
    (line,) = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert (line["message"], line["job_id"], line["reason"]) == ("message.given_back", "j", "dns_error")
    assert line["after_s"] == 7.2


@pytest.mark.shows("R106")
def test_lines_about_messages_have_the_ids_of_message_job_and_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = ScrapeTask(message_id="1", job_id="j", url="https://example.com/?token=secret", request_id="req-1")
    bodies = [write(task), write(task), "{", "[" * 100_000, '{"job_id": 7, "request_id": null}', '"x"']
    batch = SqsBatch(
        ScrapeTask,
        Scripted(Retry(7.2, "dns_error"), Poison("worker_crashed")),
        source=InMemoryQueue(),
        dead=InMemoryQueue(),
        observability=Observability("batch-lines"),
        clock=FrozenClock(),
    )
    batch(sqs_event(*bodies), FakeContext())
    lines = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    kept = ("message", "reason", "sqs_message_id", "job_id", "request_id")
    found = {line["sqs_message_id"]: {name: line[name] for name in kept if name in line} for line in lines}
    ids = {"job_id": "j", "request_id": "req-1"}
    retried = {"message": "message.given_back", "reason": "dns_error", "sqs_message_id": "m0", **ids}
    poison = {"message": "message.poison", "reason": "worker_crashed", "sqs_message_id": "m1", **ids}
    assert (found["m0"], found["m1"]) == (retried, poison)
    assert [sorted(found[each]) for each in ("m2", "m3", "m4", "m5")] == [
        ["message", "reason", "sqs_message_id"]
    ] * 4


def test_a_message_that_is_set_aside_goes_with_its_reason() -> None:
    _, _, dead = run(Scripted(Poison("token_limit_exceeded")), GOOD, "{")
    assert sorted(dead.reasons) == ["1 fields of ScrapeTask are wrong", "token_limit_exceeded"]
