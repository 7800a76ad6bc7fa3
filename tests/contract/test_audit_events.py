"""The audit: a row for each event of a job, committed with the change and never changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.results import Verdict
from indexmill.platform.observability import EVENTS
from indexmill.platform.postgres.database import Database
from tests.support.job_stores import Jobs, postgres_jobs, retried
from tests.support.jobs import CALLER, chunked, embedded, failed, new_job, scraped
from tests.support.repository import ROOT

LIBRARY = ROOT / "layers/indexmill/python/indexmill"
FIELDS = "SELECT caller_id, caller_type, tier, fields FROM audit_events WHERE event = %s ORDER BY seq"


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as found:
        yield found


@pytest.fixture
def stored(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as found:
        yield found


def rows(url: str, event: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(FIELDS, (event,)).fetchall()


@pytest.mark.shows("S20")
@pytest.mark.shows("R254")
def test_each_transition_that_counts_is_one_event(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    jobs.apply(failed(job_id))
    jobs.retry(job_id)
    for result in (scraped(job_id, 2), chunked(job_id, 2), embedded(job_id, 2)):
        jobs.apply(result, result)
        jobs.apply(result)
    assert jobs.audit(job_id) == [
        ("job_submitted", 1),
        ("job_failed", 1),
        ("job_retried", 2),
        ("job_completed", 2),
    ]


@pytest.mark.shows("S20")
def test_a_canceled_job_did_not_fail(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    jobs.cancel(job_id)
    jobs.apply(scraped(job_id))
    assert jobs.audit(job_id) == [("job_submitted", 1), ("job_canceled", 1)]


@pytest.mark.fault("F13")
def test_a_report_of_an_earlier_attempt_is_an_event_of_its_own(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    jobs.apply(failed(job_id))
    jobs.retry(job_id)
    for late in (failed(job_id, attempt=1), scraped(job_id, 1)):
        assert jobs.apply(late) == [Verdict.LATE]
        # The queue delivers it again.
        assert jobs.apply(late) == [Verdict.LATE]
    jobs.apply(scraped(job_id, 2))
    # A copy of what the current attempt reported is none.
    assert jobs.apply(scraped(job_id, 2)) == [Verdict.LATE]
    assert jobs.audit(job_id)[3:] == [("stale_callback", 1)] * 2


@pytest.mark.fault("F13")
def test_the_event_of_a_stale_report_names_both_attempts(stored: Jobs, database_url: str) -> None:
    job_id = stored.submit(new_job())
    stored.apply(failed(job_id))
    stored.retry(job_id)
    stored.apply(failed(job_id, attempt=1, code="http_500"))
    assert rows(database_url, "stale_callback") == [
        (
            CALLER.caller_id,
            "unknown",
            "free",
            {
                "job_id": job_id,
                "attempt": 1,
                "current_attempt": 2,
                "stage": "scraping",
                "status": "failed",
                "code": "http_500",
            },
        )
    ]


@pytest.mark.shows("S20")
def test_duplicates_and_repeats_are_no_submits(stored: Jobs, database_url: str) -> None:
    first = stored.send("key", url="https://example.com/one")
    assert stored.send("key", url="https://example.com/one") == first
    assert stored.send(url="https://example.com/one").deduplicated
    assert [row[3]["job_id"] for row in rows(database_url, "job_submitted")] == [first.job_id]


@pytest.mark.shows("S20")
def test_what_depends_on_a_failed_job_fails_in_the_audit_too(stored: Jobs, database_url: str) -> None:
    first = stored.send(url="https://example.com/one").job_id
    second = stored.send(url="https://example.com/two", depends_on=[first]).job_id
    third = stored.send(url="https://example.com/three", depends_on=[second]).job_id
    stored.apply(failed(first))
    found = {row[3]["job_id"]: (row[0], row[3]["code"]) for row in rows(database_url, "job_failed")}
    assert found == {
        first: (CALLER.caller_id, "http_403"),
        second: (CALLER.caller_id, "dependency_failed"),
        third: (CALLER.caller_id, "dependency_failed"),
    }
    retried(stored.store, first)
    retried(stored.store, second)
    stored.cancel(first, "no longer wanted")
    (canceled,) = rows(database_url, "job_canceled")
    assert (canceled[3]["code"], canceled[3]["reason"]) == ("canceled", "no longer wanted")
    assert stored.audit(second)[-1] == ("job_failed", 2)


@pytest.mark.shows("S19")
def test_a_failure_says_nothing_of_the_document(stored: Jobs, database_url: str) -> None:
    job_id = stored.submit(new_job())
    stored.apply(failed(job_id))
    (row,) = rows(database_url, "job_failed")
    assert row[3] == {"job_id": job_id, "attempt": 1, "stage": "scraping", "code": "http_403"}


@pytest.mark.shows("S20")
@pytest.mark.parametrize(
    "change", ["UPDATE audit_events SET event = 'none'", "DELETE FROM audit_events", "TRUNCATE audit_events"]
)
def test_no_event_is_changed(stored: Jobs, database_url: str, change: str) -> None:
    stored.submit(new_job())
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(psycopg.errors.RaiseException, match="append-only"),
    ):
        connection.execute(change.encode())


@pytest.mark.shows("S20")
def test_operators_acts_on_callers_are_events(database_url: str) -> None:
    acts = (
        "SELECT link_callers('old', 'new')",
        "SELECT block_caller('old', 'too many')",
        "UPDATE callers SET mirrored = true, version = version + 1",
        "SELECT unblock_caller('old')",
        "SELECT set_maintenance('back at noon')",
        "UPDATE maintenance SET mirrored = true",
        "SELECT set_maintenance(NULL)",
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        for act in acts:
            connection.execute(act.encode())
        found = connection.execute(
            "SELECT event, caller_id, caller_type, fields FROM audit_events ORDER BY seq"
        ).fetchall()
    assert found == [
        ("caller_linked", "new", "unknown", {"root": "old"}),
        ("caller_blocked", "old", "unknown", {"reason": "too many"}),
        ("caller_unblocked", "old", "unknown", {}),
        ("maintenance_changed", "operator", "operator", {"on": True}),
        ("maintenance_changed", "operator", "operator", {"on": False}),
    ]


@pytest.mark.shows("S20")
def test_an_event_is_not_kept_without_its_change(database_url: str) -> None:
    database = Database(database_url)
    store, job = JobStore(database), new_job()

    def work(tx: Any) -> None:
        tx.insert_jobs([job], {job.job_id: None}, {})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transaction(work)
    database.close()
    assert rows(database_url, "job_submitted") == []


def emitted() -> set[str]:
    """Return the names in code: those that functions emit, and those that statements write."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in LIBRARY.rglob("*.py"))
    sources = [*(ROOT / "sql").glob("*.sql"), *LIBRARY.rglob("*.sql")]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    written = "\n".join(re.findall(r"INSERT INTO audit_events.*?(?:;|\n\n)", texts, re.DOTALL))
    return {
        *re.findall(r"\bemit\(\s*\"(\w+)\"", code),
        *re.findall(r"(?:THEN|ELSE|SELECT|VALUES \() ?'(\w+)'", written),
        *re.findall(r"audit_caller\('(\w+)'\)", texts),
        *re.findall(r"audit_corpus\('(\w+)'", texts),
    }


@pytest.mark.shows("R254")
def test_code_and_documentation_know_the_same_events() -> None:
    document = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = document.split("## The audit\n")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(documented) == sorted(EVENTS)
    assert emitted() == set(EVENTS)
