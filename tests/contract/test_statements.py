"""Statements that each act costs, in their order: every one is a round trip."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from indexmill.embedding.adapters.pgvector import statements as index
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.rows import SQL
from tests.support.job_stores import Jobs, postgres_jobs
from tests.support.jobs import CALLER, chunked, embedded, failed, found_jobs, new_job, scraped, submitted

NAMES = {text: name for name, text in SQL.items()}


@pytest.mark.parametrize("texts", [SQL, index.SQL], ids=["orchestrator", "embedding"])
def test_a_parameter_that_a_statement_repeats_has_one_format(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        formats = set(re.findall(r"%\((\w+)\)([bst])", text))
        assert len(formats) == len(dict(formats)), name


class Recording:
    """Jobs on Postgres, and the statements that are executed."""

    def __init__(self, jobs: Jobs, executed: list[str]) -> None:
        """`executed` grows with each statement."""
        self.jobs, self._executed = jobs, executed
        # The pace is read once a second; later ones are taken from memory.
        self.jobs.submit(new_job("https://example.com/first"))

    def of(self, act: Callable[[], object]) -> list[str]:
        """Return the names of the statements that `act` executes."""
        self._executed.clear()
        act()
        return [name for name in self._executed if name != "pace"]


@pytest.fixture
def recording(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    executed: list[str] = []
    execute = psycopg.Cursor.execute

    def recorded(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        executed.append(NAMES.get(query, str(query)))
        return execute(self, query, *arguments, **named)

    monkeypatch.setattr(psycopg.Cursor, "execute", recorded)
    with postgres_jobs(database_url) as jobs:
        yield Recording(jobs, executed)


def url(number: int) -> str:
    return f"https://example.com/{number}"


def test_a_submit(recording: Recording) -> None:
    jobs = recording.jobs
    admission = ["queues_to_admit", "start_jobs"]
    assert recording.of(lambda: jobs.submit(new_job())) == ["usage", "insert_jobs", *admission]
    duplicate = ["usage", "insert_jobs", "jobs_in_flight", "queues_to_admit"]
    assert recording.of(lambda: jobs.submit(new_job())) == duplicate
    with_key = ["take_key", "usage", "insert_jobs", "keep_answer", *admission]
    assert recording.of(lambda: jobs.send("k", url=url(1))) == with_key
    assert recording.of(lambda: jobs.send("k", url=url(1))) == ["take_key", "kept_answer"]


def test_a_submit_with_dependencies(recording: Recording) -> None:
    jobs = recording.jobs
    first = jobs.submit(new_job())
    follower = new_job(url(1), depends_on=(first,))
    assert recording.of(lambda: submitted(jobs.store, follower)) == [
        *("usage", "insert_jobs"),
        *("lock_dependencies", "insert_dependencies", "has_cycle", "block_jobs"),
        "queues_to_admit",
    ]
    assert recording.of(lambda: jobs.job(follower.job_id)) == ["job", "position", "held_back", "blockers"]


def test_results(recording: Recording) -> None:
    jobs = recording.jobs
    first = jobs.submit(new_job())
    jobs.submit(new_job(url(1), depends_on=(first,)))
    applied = ["lock_jobs", "receive", "save_results"]
    settled = ["lock_dependents", "fail_dependents", "unblock_jobs"]
    assert recording.of(lambda: jobs.apply(scraped(first))) == applied
    assert recording.of(lambda: jobs.apply(chunked(first))) == applied
    assert recording.of(lambda: jobs.apply(embedded(first))) == [
        *applied,
        *settled,
        *("queues_to_admit", "start_jobs"),
    ]
    assert recording.of(lambda: jobs.apply(scraped(first))) == ["lock_jobs", "receive"]
    assert recording.of(lambda: jobs.apply(scraped(first, 2))) == ["lock_jobs", "receive", "forget"]


def test_a_failed_embedding_and_its_retry(recording: Recording) -> None:
    jobs = recording.jobs
    job_id, _ = jobs.up_to_embedding(new_job())
    assert recording.of(lambda: jobs.apply(failed(job_id, "embedding"))) == [
        *("lock_jobs", "receive", "lock_documents", "save_results", "raise_fences", "queues_to_admit"),
    ]
    assert recording.of(lambda: jobs.retry(job_id)) == [
        *("lock_job", "has_message", "usage", "unmet_dependencies", "jobs_in_flight", "kept_payloads"),
        *("published_since", "raise_fences", "restart_job", "queues_to_admit", "start_jobs", "job"),
    ]
    fenced = embedded(job_id, 2, published=False)
    assert recording.of(lambda: jobs.apply(fenced)) == ["lock_jobs", "receive", "kept_payloads", "redispatch"]


def test_a_cancel(recording: Recording) -> None:
    jobs = recording.jobs
    plain, (embedding, _) = jobs.submit(new_job()), jobs.up_to_embedding(new_job(url(1)))
    assert recording.of(lambda: jobs.cancel(plain)) == ["lock_job", "cancel_jobs", "queues_to_admit", "job"]
    assert recording.of(lambda: jobs.cancel(embedding)) == [
        *("lock_job", "lock_documents", "cancel_jobs", "raise_fences", "queues_to_admit", "job"),
    ]


def test_reads(recording: Recording) -> None:
    jobs, caller = recording.jobs, CALLER.caller_id
    job_id = jobs.submit(new_job())
    assert recording.of(lambda: jobs.job(job_id)) == ["job"]
    assert recording.of(lambda: found_jobs(jobs.store, JobFilter(caller))) == ["find_jobs"]
    assert recording.of(lambda: jobs.store.read(lambda tx: tx.original(caller, job_id))) == ["original"]
