"""An environment that can open or write nothing more ends, and takes no finished work along."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from indexmill.contracts.messages import ScrapeTask, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Retry
from indexmill.platform.consumer.sqs_batch import EnvironmentHealth, SqsBatch
from indexmill.platform.observability import Observability
from tests.support.events import FakeContext, sqs_event
from tests.twins.queues import InMemoryQueue


class Ended(BaseException):
    """The process ends here."""


class Patient:
    """EnvironmentHealth as a test wants them."""

    def __init__(self, ailment: str | None) -> None:
        self.ailment = ailment
        self.looks = 0

    def failing(self) -> str | None:
        self.looks += 1
        return self.ailment

    def end(self) -> None:
        raise Ended


def batch(health: Patient, *outcomes: Outcome) -> tuple[SqsBatch[ScrapeTask], InMemoryQueue]:
    def handle(deliveries: Sequence[Delivery[ScrapeTask]]) -> Sequence[Outcome]:
        return outcomes

    source = InMemoryQueue()
    observability = Observability("test", level="CRITICAL")
    made = SqsBatch(
        ScrapeTask, handle, source=source, dead=InMemoryQueue(), observability=observability, health=health
    )
    return made, source


GOOD = write(ScrapeTask(message_id="1", job_id="j", url="https://example.com/"))


@pytest.mark.fault("F67")
def test_what_is_finished_is_deleted_and_what_is_not_given_back_before_the_end() -> None:
    handler, source = batch(Patient("EMFILE"), Done(), Retry(3, "storage_unavailable"))
    with pytest.raises(Ended):
        handler(sqs_event(GOOD, GOOD), FakeContext())
    assert source.deleted == ["r0"]
    assert source.given_back == [("r1", 3)]


def test_a_healthy_environment_lives_on_and_success_asks_for_nothing() -> None:
    health = Patient(None)
    handler, source = batch(health, Done(), Retry(3, "http_503"))
    assert handler(sqs_event(GOOD, GOOD), FakeContext())["batchItemFailures"] == [{"itemIdentifier": "m1"}]
    assert (health.looks, source.deleted) == (1, [])
    handler, _ = batch(health, Done())
    handler(sqs_event(GOOD), FakeContext())
    assert health.looks == 1


LIMITED = """
import resource
from indexmill.platform.consumer.sqs_batch import EnvironmentHealth
health = EnvironmentHealth()
resource.setrlimit(resource.{limit}, ({value}, {value}))
print(health.failing())
health.end()
print("unreachable")
"""


@pytest.mark.fault("F67")
@pytest.mark.parametrize(
    ("limit", "value", "found"), [("RLIMIT_NOFILE", 3, "EMFILE"), ("RLIMIT_FSIZE", 100, "EFBIG")]
)
def test_a_process_without_descriptors_or_disk_sees_it_and_ends(limit: str, value: int, found: str) -> None:
    program = LIMITED.format(limit=limit, value=value)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout.split(), ran.returncode) == ([found], 1), ran.stderr


def test_this_process_is_well() -> None:
    assert EnvironmentHealth().failing() is None
