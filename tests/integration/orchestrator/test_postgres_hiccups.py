"""Postgres restarts, ends sessions, is full or busy: work is repeated from its start, or a 503.

Each of it on a direct connection, and on one through a pooler in transaction mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from indexmill.contracts.errors import TransientError
from indexmill.orchestrator.http.api import routes
from indexmill.orchestrator.settings import OrchestratorApiSettings
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.orchestrator.wiring import build_use_cases
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.postgres.database import Connection, Database
from local.backends.postgres import EmbeddedPostgres, create_database
from sql.migrate import migrate
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.function_env import environment
from tests.support.jobs import applied, failed, new_job, scraped, submitted
from tests.support.pooler import Chain, chain
from tests.support.stack import eventually

pytestmark = [pytest.mark.integration, pytest.mark.direct]

HOLD = b"LOCK TABLE jobs, outbox, job_history, sweep_state IN ACCESS EXCLUSIVE MODE"
SESSION = "SELECT pid FROM pg_stat_activity WHERE pid = %s"
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def cut_off_while_waiting(url: str, work: Callable[[], Any]) -> Any:
    """Run `work`, end its session when it waits for a lock in the middle, and return what it gives then."""
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(url) as holder,
        psycopg.connect(url, autocommit=True) as watcher,
    ):
        holder.execute(HOLD)
        doing = pool.submit(work)
        (pid,) = eventually(lambda: watcher.execute(WAITING).fetchone(), "it waits", 4)
        watcher.execute("SELECT pg_terminate_backend(%s)", (pid,))
        holder.rollback()
        return doing.result(10)


@pytest.fixture(params=["direct", "pooled"])
def pooled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "pooled")


@pytest.fixture
def own_url(pooled: bool, database_url: str, request: pytest.FixtureRequest) -> str:
    """Return the address by which the product connects."""
    found: Chain | None = request.getfixturevalue("postgres_chain") if pooled else None
    return found.url(database_url) if found else database_url


@pytest.fixture
def database(own_url: str) -> Iterator[Database]:
    opened = Database(own_url)
    opened.connection()
    yield opened
    opened.close()


@pytest.mark.fault("F29")
def test_a_submit_that_is_cut_off_is_done_again(database_url: str, database: Database) -> None:
    job, store = new_job(), JobStore(database)
    _, messages = cut_off_while_waiting(database_url, lambda: submitted(store, job))
    assert [row.id for row in messages] == [job.first.id]
    rows = database.connection().execute("SELECT count(*) FROM job_history").fetchall()
    assert rows == [(2,)]


@pytest.mark.fault("F29")
def test_a_result_that_is_cut_off_is_applied_once(database_url: str, database: Database) -> None:
    job, store = new_job(), JobStore(database)
    submitted(store, job)
    (change,) = cut_off_while_waiting(database_url, lambda: applied(store, scraped(job.job_id)))
    assert change.status == "chunking"
    assert len(change.outbox) == 1


@pytest.mark.fault("F29")
def test_a_sweep_that_is_cut_off_is_done_again(database_url: str, database: Database) -> None:
    job, store, view = new_job(), JobStore(database), SweepStore(database)
    submitted(store, job)
    store.mark_sent([job.first.id])
    found = view.find_stale("scraping", 10, view.now(), overtaken=False)
    assert cut_off_while_waiting(database_url, lambda: view.send_again(found)) == 1


@pytest.mark.fault("F33")
def test_a_session_that_ended_while_the_process_was_frozen_is_replaced(
    database_url: str, database: Database
) -> None:
    store = JobStore(database)
    uses: list[Callable[[], object]] = [
        lambda: submitted(store, new_job()),
        lambda: store.claim(1),
        lambda: store.read(lambda tx: tx.state("none")),
    ]
    for use in uses:
        pid = backend(database.connection())
        with psycopg.connect(database_url, autocommit=True) as watcher:
            watcher.execute("SELECT pg_terminate_backend(%s)", (pid,))
            eventually(lambda pid=pid: not watcher.execute(SESSION, (pid,)).fetchone(), "it is gone", 5)
        use()
        assert backend(database.connection()) != pid


@pytest.mark.fault("F33")
@pytest.mark.usefixtures("postgres_chain")
def test_a_connection_that_the_pooler_closed_while_the_process_was_frozen_is_replaced(
    postgres_server: str, database_url: str
) -> None:
    with chain(urlsplit(postgres_server).port or 0, client_idle_s=0.2) as impatient:
        database = Database(impatient.url(database_url))
        before = database.connection()
        (closed, _, _) = select.select([before], [], [], 5)
        assert closed == [before]
        submitted(JobStore(database), new_job())
        assert database.connection() is not before
        database.close()


def backend(connection: Connection) -> int:
    """Return the server process behind a connection; a pooler tells its clients numbers of its own."""
    ((pid,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
    return int(pid)


def raising(state: str, times: int, calls: list[int]) -> Callable[[Connection], str]:
    def work(connection: Connection) -> str:
        calls.append(1)
        if len(calls) <= times:
            raised = f"DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '{state}'; END $$"
            connection.execute(raised.encode())
        return "done"

    return work


@pytest.mark.fault("F32")
@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
@pytest.mark.parametrize("way", ["run", "read"])
def test_contention_is_met_by_trying_again_three_times(database: Database, way: str, state: str) -> None:
    calls: list[int] = []
    assert getattr(database, way)(raising(state, 3, calls)) == "done"
    assert len(calls) == 4
    pid = database.connection().info.backend_pid
    calls.clear()
    with pytest.raises(TransientError) as given_up:
        getattr(database, way)(raising(state, 9, calls))
    assert (given_up.value.code, len(calls)) == ("database_unavailable", 4)
    assert database.connection().info.backend_pid == pid


@pytest.mark.fault("F34")
def test_a_server_that_takes_no_writes_any_more_is_left(database: Database) -> None:
    """After a failover the old address may lead to a reader for a moment."""
    pid = database.connection().info.backend_pid
    calls: list[int] = []
    assert database.run(raising("25006", 1, calls)) == "done"
    assert database.connection().info.backend_pid != pid


def test_a_statement_that_takes_too_long_is_not_tried_again(database: Database) -> None:
    calls: list[int] = []
    with pytest.raises(TransientError):
        database.run(raising("57014", 9, calls))
    assert len(calls) == 1


@pytest.mark.fault("F32")
def test_batches_that_share_jobs_never_deadlock(own_url: str) -> None:
    databases = [Database(own_url) for _ in range(4)]
    stores = [JobStore(each) for each in databases]
    jobs = [new_job(f"https://example.com/{number}") for number in range(20)]
    for job in jobs:
        submitted(stores[0], job)
    problems: list[Exception] = []

    def apply_all(store: JobStore, turn: int) -> None:
        try:
            for at in range(20):
                order = jobs[at:] + jobs[:at] if turn % 2 else jobs[at::-1]
                applied(store, *(failed(job.job_id) for job in order))
        except Exception as error:  # noqa: BLE001 - asserted by the test
            problems.append(error)

    threads = [threading.Thread(target=apply_all, args=(store, turn)) for turn, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in databases:
        each.close()
    assert problems == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[EmbeddedPostgres, str]]:
    """Yield a server of the test's own with few connections, and a migrated database on it."""
    few = {"max_connections": "8", "superuser_reserved_connections": "0", "reserved_connections": "0"}
    made = EmbeddedPostgres(tmp_path, settings=few)
    try:
        url = create_database(made.start(), "own")
        migrate(url)
        yield made, url
    finally:
        made.delete()


@pytest.fixture
def way_in(
    pooled: bool, server: tuple[EmbeddedPostgres, str], request: pytest.FixtureRequest
) -> Iterator[str]:
    """Yield the address by which the product connects to that server."""
    if not pooled:
        yield server[1]
        return
    request.getfixturevalue("postgres_chain")
    with chain(urlsplit(server[1]).port or 0, pool_size=2) as made:
        yield made.url(server[1])


@pytest.mark.fault("F29", "F30")
def test_a_restart_costs_a_moment_and_nothing_else(server: tuple[EmbeddedPostgres, str], way_in: str) -> None:
    postgres, _ = server
    # A pooler without its server lets a client wait for it, so the limit of the statement counts.
    database = Database(way_in, answer_s=0.5)
    store, job = JobStore(database), new_job()
    submitted(store, job)
    postgres.stop()
    began = time.monotonic()
    for use in (lambda: submitted(store, new_job("https://example.com/b")), lambda: store.claim(1)):
        with pytest.raises(TransientError) as unavailable:
            use()
        assert unavailable.value.code == "database_unavailable"
    assert time.monotonic() - began < 3
    postgres.start()

    def reported() -> str | None:
        with contextlib.suppress(TransientError):
            return applied(store, scraped(job.job_id))[0].status
        return None

    assert eventually(reported, "a pooler connects again", 2) == "chunking"
    database.close()


@pytest.fixture
def _event_loop() -> Iterator[None]:
    """Give the main thread a loop, as Lambda's has."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def orchestrator_api(url: str) -> Callable[[], dict[str, Any]]:
    """Return the function that lists jobs in the database at `url`."""
    settings = OrchestratorApiSettings.from_environment(
        {**environment("OrchestratorApi"), "DATABASE_URL": url}
    )
    api = build_use_cases(settings)
    handler = lambda_handler(create_app([routes(api)], api.observability), api.observability)
    event = api_event("GET", "/orchestrator/jobs", caller=caller_claims())
    return lambda: handler(event, FakeContext())


def unavailable_within(seconds: float, answering: Callable[[], dict[str, Any]]) -> None:
    began = time.monotonic()
    answer = answering()
    assert time.monotonic() - began < seconds
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["code"]) == (503, "database_unavailable")
    assert error["retry_after"] > 0


def fill(url: str) -> list[Connection]:
    """Take every connection that the server has."""
    taken: list[Connection] = []
    while True:
        try:
            taken.append(psycopg.connect(url))
        except psycopg.OperationalError:
            return taken


@pytest.mark.fault("F31")
@pytest.mark.usefixtures("_event_loop")
def test_a_full_server_is_a_503_within_two_seconds(server: tuple[EmbeddedPostgres, str], way_in: str) -> None:
    answering, others = orchestrator_api(way_in), fill(server[1])
    try:
        unavailable_within(2, answering)
    finally:
        for each in others:
            each.close()
    assert eventually(lambda: answering()["statusCode"] == 200, "it is well again", 5)


@pytest.mark.fault("F31")
@pytest.mark.usefixtures("_event_loop", "postgres_chain")
@pytest.mark.parametrize("queue_wait_s", [60, 1], ids=["the function gives up", "the pooler gives up"])
def test_a_pool_without_a_free_connection_is_a_503_in_time(
    postgres_server: str, database_url: str, queue_wait_s: int
) -> None:
    port = urlsplit(postgres_server).port or 0
    with chain(port, pool_size=2, queue_wait_s=queue_wait_s) as small:
        url = small.url(database_url)
        answering = orchestrator_api(url)
        with psycopg.connect(url) as one, psycopg.connect(url) as other:
            for busy in (one, other):
                busy.execute("SELECT 1")
            unavailable_within(10, answering)  # a statement's limit is four, and the machine may be busy
        assert answering()["statusCode"] == 200
        assert small.reported() == []


@pytest.mark.fault("F34")
def test_a_writer_that_became_a_reader_is_a_503_until_it_writes_again(
    database_url: str, database: Database
) -> None:
    store, job, name = JobStore(database), new_job(), urlsplit(database_url).path[1:]

    def make_it(setting: str) -> None:
        """Change the database, and end its sessions as a failover does."""
        with psycopg.connect(database_url, autocommit=True) as operator:
            operator.execute("SET default_transaction_read_only = off")
            operator.execute(f'ALTER DATABASE "{name}" {setting}'.encode())
            operator.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    make_it("SET default_transaction_read_only = on")
    with pytest.raises(TransientError) as refused:
        submitted(store, job)
    assert refused.value.code == "database_unavailable"
    make_it("RESET default_transaction_read_only")
    _, messages = submitted(store, job)
    assert [row.id for row in messages] == [job.first.id]
