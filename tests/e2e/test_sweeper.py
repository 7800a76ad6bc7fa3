"""The sweeper on the whole local cloud: who may log in as whom, pauses, and messages that vanish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import httpx
import psycopg
import pytest

from indexmill.client import Client
from indexmill.notify_orchestrator import NotifyOrchestrator
from indexmill.platform.postgres.database import Connection
from tests.support.jobs import embedded
from tests.support.stack import RunningStack, eventually, index
from tests.twins.queues import InMemoryQueue

pytestmark = pytest.mark.e2e

CORPUS, PAGE = "swept", "/collections/bookboat.html"


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Connection]:
    """Yield the owner's connection; nothing is paused afterwards."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        yield connection
        connection.execute("DELETE FROM pauses")
    sweep(stack)


@pytest.fixture
def sqs(stack: RunningStack) -> Any:
    make: Any = boto3.client
    return make(
        "sqs",
        endpoint_url=stack.aws_endpoint,
        region_name=stack.region,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def sweep(stack: RunningStack) -> dict[str, int]:
    """Do one tick now, beside those of the schedule."""
    url = f"{stack.invoke_endpoint}/2015-03-31/functions/OrchestratorSweeper/invocations"
    answer = httpx.post(url, json={}, timeout=60.0)
    assert "X-Amz-Function-Error" not in answer.headers, answer.text
    done: dict[str, int] = answer.json()
    return done


def pass_a_minute(database: Connection) -> None:
    database.execute("UPDATE outbox SET sent_at = sent_at - interval '61 seconds'")
    database.execute("UPDATE sweep_state SET counted_at = counted_at - interval '61 seconds'")


def enabled(stack: RunningStack, mapping: str) -> bool:
    sources = next(value for key, value in find(stack.status(), "sources"))
    return bool(sources[mapping]["enabled"])


def find(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key == name:
                yield key, part
            yield from find(part, name)


# PgBouncer looks logins up by a session of the owner's.
@pytest.mark.direct
def test_each_service_logs_in_as_itself(stack: RunningStack, client: Client, database: Connection) -> None:
    job = index(client, stack.site + PAGE, CORPUS)
    history = client.history(job.job_id)
    assert (job.status, history.intact) == ("done", True)
    assert [each.to_status for each in history.entries] == [
        *("pending", "scraping", "chunking", "embedding", "done"),
    ]
    queue = InMemoryQueue()
    notify = NotifyOrchestrator(stack.gateway, stack.ops_key, queue)
    assert (notify(embedded(job.job_id)), queue.bodies) == ("http", [])
    notify.close()
    reported = {each.cause: each.worker for each in history.entries}
    assert reported["scraping success"]
    assert reported["embedding success"]
    assert client.history(job.job_id) == history
    sweep(stack)
    rows = database.execute(
        "SELECT DISTINCT usename FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).fetchall()
    services = ("orchestrator_app", "orchestrator_caller", "embedding_app", "embedding_caller")
    logins = {row[0] for row in rows}
    # Of functions that answer callers only those that were asked; none is the tables' owner.
    assert logins >= {
        "indexmill_orchestrator_app",
        "indexmill_orchestrator_caller",
        "indexmill_embedding_app",
    }
    assert logins <= {f"indexmill_{service}" for service in services}


def test_a_paused_stage_stops_and_resumes(stack: RunningStack, client: Client, database: Connection) -> None:
    database.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'a test', 'me')")
    sweep(stack)
    assert not enabled(stack, "ScraperWorkerTasks")
    assert enabled(stack, "EmbeddingWorkerTasks")
    job_id = client.submit(stack.site + PAGE + "?paused", CORPUS).job_id
    incidents = "SELECT kind, subject FROM incidents WHERE closed_at IS NULL"
    assert database.execute(incidents.encode()).fetchall() == [("paused", "scraping")]
    paused = client.get(job_id)
    assert paused.status == "pending"
    assert paused.waiting is not None
    assert paused.waiting.reason == "paused"
    database.execute("DELETE FROM pauses")
    sweep(stack)
    assert enabled(stack, "ScraperWorkerTasks")
    (job,) = client.wait([job_id], 30)
    assert job.status == "done"
    assert database.execute(incidents.encode()).fetchall() == []


def test_a_message_that_vanished_is_sent_again(
    stack: RunningStack, client: Client, database: Connection, sqs: Any
) -> None:
    database.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES ('embedding', 'a test', 'me')")
    sweep(stack)
    ids = client.submit([f"{stack.site}{PAGE}?lost={n}" for n in range(5)], CORPUS).job_ids or []
    queue = stack.resources["EmbedQueue"]

    def taken() -> Any:
        return sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=2).get("Messages")

    gone = eventually(taken, "messages are in the queue")
    for message in gone:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    database.execute("DELETE FROM pauses")
    sweep(stack)
    rest = set(ids)
    eventually(
        lambda: len({each for each in rest if client.get(each).status == "done"}) == 5 - len(gone) or None,
        "the others are done",
    )

    def rescues() -> int:
        statement = "SELECT sum(rescues) FROM outbox WHERE job_id = ANY(%s)"
        (count,) = database.execute(statement, (ids,)).fetchone() or (0,)
        return int(count)

    def found() -> bool:
        pass_a_minute(database)
        sweep(stack)
        return rescues() >= len(gone)

    eventually(found, "the lost ones are sent again", 60)
    assert {job.status for job in client.wait(ids, 60)} == {"done"}
    assert rescues() == len(gone)


def test_an_index_that_is_due_is_built(stack: RunningStack, database: Connection) -> None:
    built = "SELECT indexed_rows FROM spaces WHERE model = 'made up'"
    database.execute("INSERT INTO spaces (model, dimension) VALUES ('made up', 4)")
    database.execute("INSERT INTO corpus_totals VALUES (-1, 0, 10000, 0, 0, 0)")
    try:
        assert sweep(stack)["indexes"] >= 1
        eventually(lambda: database.execute(built).fetchone() != (0,), "the index is built")
        eventually(lambda: sweep(stack)["indexes"] == 0, "nothing is due")
    finally:
        database.execute("DELETE FROM corpus_totals WHERE corpus = -1")
        for (name,) in database.execute("SELECT 'vectors_space_' || id FROM spaces").fetchall():
            database.execute(f"DROP INDEX IF EXISTS {name}".encode())
        database.execute("DELETE FROM spaces WHERE model = 'made up'")
        database.execute("UPDATE spaces SET indexed_rows = 0, index_tried_at = NULL")
