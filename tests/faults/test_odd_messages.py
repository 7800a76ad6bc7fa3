"""Invalid messages in real queues: none is tried without end, none affects other messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from indexmill.contracts.messages import write
from local.faults.cloud import CALLBACKS
from local.faults.rules import parse
from tests.faults.arena import Arena
from tests.support.jobs import failed, scraped
from tests.support.stack import eventually

pytestmark = pytest.mark.e2e


def send(arena: Arena, queue: str, body: str) -> None:
    arena.cloud.sqs.send_message(QueueUrl=arena.cloud.queues[queue], MessageBody=body)


def letters(arena: Arena, body: str) -> list[tuple[str, str]]:
    """Return queue and cause of each kept dead letter with this body."""
    with arena.cloud.database() as database:
        statement = "SELECT queue, cause FROM dead_letters WHERE body = %s ORDER BY id"
        return [(queue.rpartition("-")[2], cause) for queue, cause in database.execute(statement, (body,))]


def is_quiet(arena: Arena) -> bool:
    return not any(arena.cloud.depths().values())


def errors(arena: Arena, function: str) -> int:
    return int(arena.stack.status()["functions"][function]["errors"])


@pytest.mark.fault("F16")
def test_a_result_of_an_unknown_job_is_received_once_without_an_error(kept: Arena) -> None:
    before = errors(kept, "OrchestratorResults")
    report = scraped(str(uuid.uuid4()))
    send(kept, CALLBACKS, write(report))
    with kept.cloud.database() as database:
        statement = "SELECT 1 FROM inbox WHERE message_id = %s"
        eventually(
            lambda: database.execute(statement, (report.message_id,)).fetchone(), "the report is looked at"
        )
    eventually(lambda: is_quiet(kept), "it is gone")
    assert letters(kept, write(report)) == []
    assert errors(kept, "OrchestratorResults") == before


@pytest.mark.shows("B85")
@pytest.mark.fault("F17")
@pytest.mark.parametrize(
    "odd",
    [
        {"stage": "translating"},
        {"status": "maybe"},
        {"attempt": "soon"},
        {"failure": None},
        {"attempt": 2**31},
    ],
    ids=lambda odd: "-".join(map(str, *odd.items())),
)
def test_a_result_that_breaks_the_schema_is_a_dead_letter_and_moves_no_job(
    kept: Arena, odd: dict[str, Any]
) -> None:
    page = kept.page(kept.token("schema"))
    kept.control.arm([parse(f"ScraperWorker/http.get@page:delay=1~{page.token}")])
    job = kept.submit(page)
    body = json.dumps({**json.loads(write(failed(job.job_id))), **odd})
    send(kept, CALLBACKS, body)
    eventually(lambda: bool(letters(kept, body)), "it is kept as a dead letter")
    assert letters(kept, body) == [("CallbacksDlq", "unreadable")]
    eventually(lambda: kept.ended([job]), "the job ends as if nothing had been said")


@pytest.fixture
def emptied(kept: Arena) -> Iterator[Arena]:
    """Yield the stack; messages that wait for other code are gone afterwards."""
    yield kept
    for queue in ("ScrapeQueue", CALLBACKS):
        kept.cloud.sqs.purge_queue(QueueUrl=kept.cloud.queues[queue])


@pytest.mark.fault("F18")
@pytest.mark.parametrize("queue", ["ScrapeQueue", CALLBACKS])
def test_a_message_of_a_newer_schema_stays_in_its_queue_for_newer_code(emptied: Arena, queue: str) -> None:
    kind = "scrape" if queue == "ScrapeQueue" else "result"
    body = json.dumps({"schema": f"indexmill.{kind}.v99", "message_id": "new", "what": ["only they know"]})
    send(emptied, queue, body)
    url = emptied.cloud.queues[queue]

    def hidden() -> bool:
        found = emptied.cloud.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return (found["ApproximateNumberOfMessages"], found["ApproximateNumberOfMessagesNotVisible"]) == (
            *("0", "1"),
        )

    eventually(hidden, "it was seen and given back")
    job = emptied.submit(emptied.page(emptied.token("beside")))
    eventually(lambda: emptied.ended([job]), "its neighbours are handled")
    eventually(hidden, "it alone is still there")
    assert letters(emptied, body) == []


@pytest.mark.fault("F19")
@pytest.mark.parametrize("queue", ["ScrapeQueue", "ChunkQueue", "EmbedQueue", CALLBACKS])
@pytest.mark.parametrize("body", ["{", "[]", "7", '"text"', '{"schema": "of.somebody-else.v1"}'])
def test_what_is_no_message_leaves_its_queue_and_its_neighbours_alone(
    kept: Arena, queue: str, body: str
) -> None:
    before = len(letters(kept, body))
    job = kept.submit(kept.page(kept.token("poison")))
    send(kept, queue, body)
    eventually(lambda: len(letters(kept, body)) > before, "it is kept as a dead letter")
    assert letters(kept, body)[-1] == (queue.replace("Queue", "Dlq"), "foreign")
    eventually(lambda: kept.ended([job]), "its neighbour ends")
