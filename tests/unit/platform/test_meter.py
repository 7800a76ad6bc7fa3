"""Shares of an environment's work: they sum up to what it used, and each carries what is known in advance."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from botocore import xform_name
from botocore.exceptions import EndpointConnectionError

from indexmill.contracts.cost import Amounts, total
from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.contracts.pipeline import BY_NAME
from indexmill.platform.aws.clients import CallLimits, DirectClient
from indexmill.platform.consumer.deliveries import BatchReporter, Delivery, Wait, WorkerStage
from indexmill.platform.meter import METER, Meter, sends, split
from tests.support.jobs import scraped
from tests.twins.clock import FrozenClock
from tests.twins.queues import InMemoryQueue

STAGE = WorkerStage(BY_NAME["scraping"], "It crashed")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FrozenClock:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "2048")
    return FrozenClock()


@pytest.fixture
def meter(clock: FrozenClock) -> Meter:
    """Return a meter in an invocation with three messages, which began just now."""
    made = Meter(clock)
    made.begin(["x"] * 3)
    return made


class CountedQueue(InMemoryQueue):
    """A queue whose sends are counted, as those of SQS are."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def send(self, bodies: Sequence[str], groups: Sequence[str] = (), *, reason: str = "") -> list[int]:
        self._meter.request("sqs", "SendMessageBatch")
        return super().send(bodies, groups)


def batch(meter: Meter, clock: FrozenClock, queue: InMemoryQueue, jobs: int = 3) -> BatchReporter[ScrapeTask]:
    deliveries = [
        Delivery(ScrapeTask(message_id=f"m{at}", job_id=f"j{at}", url="https://a.example/"), 1, 1e9)
        for at in range(jobs)
    ]
    return BatchReporter(STAGE, deliveries, queue, clock, meter=meter)


def document(reporter: BatchReporter[ScrapeTask], position: int) -> None:
    result = scraped("any")
    reporter.success(position, document=result.output)


def spent(bodies: Sequence[str]) -> list[Amounts]:
    found = [read(StageResult, body).spent for body in bodies]
    return [each.amounts() if each is not None else {} for each in found]


def test_the_results_of_a_batch_share_its_invocation(meter: Meter, clock: FrozenClock) -> None:
    queue = CountedQueue(meter)
    reporter = batch(meter, clock, queue)
    for at in range(3):
        meter.request("s3", "PutObject")
        document(reporter, at)
    clock.tick(0.1)
    reporter.finish()
    whole = total(*spent(queue.bodies))
    assert whole["invocations"] == pytest.approx(1, abs=1e-4)
    # The receive, the delete, and the send of these very results.
    assert whole["sqs_requests"] == pytest.approx(3, abs=1e-4)
    assert whole["s3_writes"] == pytest.approx(3, abs=1e-4)
    # 2 GB for 0.1 s, and the guess for the rest.
    assert whole["gb_s"] == pytest.approx(0.21, abs=1e-4)
    assert meter.due()["sqs_requests"] == 0


def test_a_result_that_is_sent_early_pays_its_part_and_no_more(meter: Meter, clock: FrozenClock) -> None:
    queue = CountedQueue(meter)
    reporter = batch(meter, clock, queue)
    clock.tick(0.3)
    document(reporter, 0)
    reporter.flush()
    for at in (1, 2):
        document(reporter, at)
    reporter.finish()
    early, *others = spent(queue.bodies)
    assert early["invocations"] == pytest.approx(1 / 3, abs=1e-4)
    assert [each["invocations"] for each in others] == [early["invocations"]] * 2
    # A third of 0.3 s and of the guess for the rest, at 2 GB.
    assert early["gb_s"] == pytest.approx(0.61 / 3, abs=1e-3)
    assert total(early, *others)["sqs_requests"] == pytest.approx(4, abs=1e-4)


def test_what_comes_after_the_results_is_due_with_the_next_ones(meter: Meter, clock: FrozenClock) -> None:
    queue = CountedQueue(meter)
    document(reporter := batch(meter, clock, queue, 1), 0)
    reporter.finish()
    meter.request("sqs", "ChangeMessageVisibilityBatch")
    clock.tick(0.05)
    meter.end()
    clock.tick(60)
    meter.begin(["x"])
    document(reporter := batch(meter, clock, queue, 1), 0)
    reporter.finish()
    first, second = spent(queue.bodies)
    assert (first["sqs_requests"], second["sqs_requests"]) == (3, 4)
    # The rest was measured: 50 ms, of which 5 were guessed and paid; as much is expected again.
    assert (first["gb_s"], second["gb_s"]) == (pytest.approx(0.01), pytest.approx(0.09 + 0.1))


def test_a_returned_message_has_no_share_and_its_cost_is_due_later(meter: Meter, clock: FrozenClock) -> None:
    queue = CountedQueue(meter)
    reporter = batch(meter, clock, queue, 2)
    document(reporter, 0)
    reporter.add(1, Wait(1.0, "deadline"))
    reporter.finish()
    (only,) = spent(queue.bodies)
    assert only["invocations"] == 1


def test_a_batch_that_stays_in_its_queue_was_not_deleted(meter: Meter, clock: FrozenClock) -> None:
    meter.end(deleted=False)
    meter.begin([])
    assert meter.due()["sqs_requests"] == 1


def test_a_refused_result_gives_its_share_back(meter: Meter, clock: FrozenClock) -> None:
    queue = CountedQueue(meter)
    reporter = batch(meter, clock, queue, 2)
    for at in range(2):
        document(reporter, at)
    queue.refuse = {1}
    reporter.finish()
    assert meter.due()["invocations"] == 0.5


def test_a_longer_try_has_more_of_the_compute(meter: Meter, clock: FrozenClock) -> None:
    queue = CountedQueue(meter)
    reporter = batch(meter, clock, queue, 2)
    for at, seconds in enumerate((0.3, 0.1)):
        reporter.begin(at)
        clock.tick(seconds)
        document(reporter, at)
    reporter.finish()
    long, short = spent(queue.bodies)
    assert long["gb_s"] == pytest.approx(3 * short["gb_s"], abs=1e-5)
    assert long["sqs_requests"] == short["sqs_requests"]


def test_nothing_is_counted_between_invocations(clock: FrozenClock) -> None:
    meter = Meter(clock)
    meter.request("s3", "GetObject")
    clock.tick(5)
    assert set(meter.due().values()) == {0}
    meter.begin([])
    assert (meter.due()["s3_reads"], meter.due()["gb_s"]) == (0, pytest.approx(0.01))


def test_an_http_request_begins_with_nothing_due(meter: Meter, clock: FrozenClock) -> None:
    meter.request("dynamodb", "GetItem")
    meter.end()
    meter.begin_request()
    due = {name: amount for name, amount in meter.due().items() if amount and name != "gb_s"}
    assert due == {"invocations": 1, "api_requests": 1}


@pytest.mark.parametrize(
    ("service", "operation", "counted"),
    [
        ("sqs", "SendMessageBatch", {"sqs_requests": 1, "sqs_units": 1}),
        ("s3", "GetObject", {"s3_reads": 1}),
        ("s3", "PutObject", {"s3_writes": 1}),
        ("dynamodb", "BatchGetItem", {"dynamodb_requests": 1, "dynamodb_reads": 1}),
        ("dynamodb", "UpdateItem", {"dynamodb_requests": 1, "dynamodb_writes": 1}),
        ("secretsmanager", "GetSecretValue", {}),
    ],
)
def test_requests_are_counted_by_service_and_kind(
    clock: FrozenClock, service: str, operation: str, counted: Amounts
) -> None:
    meter = Meter(clock)
    meter.begin([])
    before = meter.due()
    meter.request(service, operation)
    after = meter.due()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == counted


def test_received_messages_are_billed_by_64_kib(clock: FrozenClock) -> None:
    meter = Meter(clock)
    meter.begin(["x" * 65_536, "x"])
    assert (meter.due()["sqs_requests"], meter.due()["sqs_units"]) == (2, 3)


@pytest.mark.parametrize(
    ("sizes", "requests", "units"),
    [([], 0, 0), ([1], 1, 1), ([1] * 11, 2, 2), ([60_000] * 10, 1, 10), ([600_000] * 2, 2, 20)],
)
def test_sends_are_known_from_the_sizes_of_messages(sizes: list[int], requests: int, units: int) -> None:
    assert sends(sizes) == {"sqs_requests": requests, "sqs_units": units}


def test_equal_parts_of_no_compute_are_equal() -> None:
    assert split({"gb_s": 1.0, "invocations": 1}, [0, 0]) == [{"invocations": 0.5, "gb_s": 0.5}] * 2
    assert split({"invocations": 1}, [1, 3]) == [{"invocations": 0.5}] * 2


@pytest.mark.parametrize(
    ("operation", "asked", "field", "items"),
    [
        ("BatchGetItem", {"t": {"Keys": [{}, {}, {}]}}, "dynamodb_reads", 3),
        ("BatchWriteItem", {"t": [{}, {}], "u": [{}]}, "dynamodb_writes", 3),
    ],
)
def test_every_item_of_a_batch_is_counted(
    monkeypatch: pytest.MonkeyPatch, operation: str, asked: object, field: str, items: int
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "eu-west-1")
    table = DirectClient("dynamodb", CallLimits(tries=1), "http://127.0.0.1:1")
    METER.begin([])
    before = METER.due()
    with pytest.raises(EndpointConnectionError):
        getattr(table, xform_name(operation))(RequestItems=asked)
    after = METER.due()
    METER.end()
    assert after[field] - before[field] == items
    assert after["dynamodb_requests"] - before["dynamodb_requests"] == 1
