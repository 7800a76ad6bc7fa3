"""The audit of a running stack: each event once in the log, those of jobs once in the table, no secrets."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from indexmill.client import Client
from indexmill.contracts.identity import key_hash
from tests.support.scope_matrix import add_keys
from tests.support.stack import RunningStack, eventually, index, running_stack

pytestmark = pytest.mark.e2e

Event = tuple[str, str, str | None]
"""Name, caller, and job."""
KEPT_BY_LINES = {"auth_rejected", "corpus_searched", "document_read", "internal_rejected", "scope_rejected"}
OTHER = "somebody-else"
"""Events of requests, which change nothing in the database."""
QUESTION = 'what\n{"level":"ERROR"} of "the paste"'
WRONG_KEY = f"wrong-{uuid.uuid4()}"
BOUND_KEY = f"bound-{uuid.uuid4()}"
"""Of a caller with an empty list of scopes."""
PAGE = "/workshops/bindery.html"


@pytest.fixture(scope="module")
def audited() -> Iterator[RunningStack]:
    """Yield a stack on which nothing else runs."""
    with running_stack() as running:
        yield running


@pytest.fixture(scope="module")
def expected(audited: RunningStack) -> Counter[Event]:
    """Do one of everything that is audited, and return the events that follow."""
    caller, slow = key_hash(audited.api_key), f"{audited.site}/slow?seconds=2&id="
    with audited.client() as client, audited.http() as http, audited.http(audited.ops_key) as ops:
        done = index(client, audited.site + PAGE, "docs").job_id
        lost = index(client, f"{audited.site}/lost.html", "docs").job_id
        stopped, waiting = _canceled_with_dependent(client, http, slow + "one")
        once = _submitted_twice(http, slow + "two")
        client.wait([once], 40)
        client.retry(stopped)
        late = {"stage": "scraping", "status": "failed", "attempt": 1, "error_code": "http_500"}
        for _ in range(2):
            reported = ops.post(f"/orchestrator/jobs/{stopped}/complete", json=late)
            assert reported.json() == {"status": "already_advanced"}
        replayed = client.replay(done).job_id
        asked = {"url": f"{audited.site}/lost.html", "on_behalf_of": OTHER}
        behalf = ops.post("/orchestrator/jobs", json=asked).json()["job_id"]
        client.wait([stopped, replayed], 40)
        client.search(QUESTION, "docs")
        client.content("docs", next(client.all_documents("docs")).document_id)
        assert http.post(f"/orchestrator/jobs/{done}/complete", json=late).status_code == 403
    add_keys(audited, {BOUND_KEY: {"scopes": []}})
    with audited.http(BOUND_KEY) as bound:
        assert bound.get(f"/orchestrator/jobs/{done}").status_code == 403
    with audited.http(WRONG_KEY) as stranger:
        assert stranger.get("/orchestrator/jobs").status_code == 401
    return Counter(
        [
            *(("job_submitted", caller, each) for each in (done, lost, stopped, waiting, once)),
            *(("job_completed", caller, each) for each in (done, once, stopped, replayed)),
            *(("job_failed", caller, each) for each in (lost, waiting)),
            ("job_canceled", caller, stopped),
            ("job_retried", caller, stopped),
            ("stale_callback", caller, stopped),
            ("job_replayed", caller, replayed),
            ("job_submitted", OTHER, behalf),
            ("job_failed", OTHER, behalf),
            ("corpus_searched", caller, None),
            ("document_read", caller, None),
            ("internal_rejected", caller, done),
            ("auth_rejected", key_hash(WRONG_KEY), None),
            ("scope_rejected", key_hash(BOUND_KEY), done),
        ]
    )


def _canceled_with_dependent(client: Client, http: httpx.Client, url: str) -> tuple[str, str]:
    stopped = client.submit(url, "docs").job_id
    body = {"url": url + "-after", "corpus_name": "docs", "depends_on": [stopped]}
    waiting: str = http.post("/orchestrator/jobs", json=body).json()["job_id"]
    client.cancel(stopped, "the wrong page")
    return stopped, waiting


def _submitted_twice(http: httpx.Client, url: str) -> str:
    """Submit a URL, the same under its key again, and the same as another request; return the one job."""
    body, key = {"url": url, "corpus_name": "docs"}, {"Idempotency-Key": "once"}
    answers = [http.post("/orchestrator/jobs", json=body, headers=headers) for headers in (key, key, {})]
    (job_id,) = {answer.json()["job_id"] for answer in answers}
    return str(job_id)


def lines(stack: RunningStack) -> list[dict[str, Any]]:
    """Return what is in the log group of the audit."""
    path = Path(stack.state) / "logs" / "functions" / "Audit.jsonl"
    records = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return [json.loads(record["message"]) for record in records if record["stream"] == "stdout"]


def rows(stack: RunningStack) -> list[dict[str, Any]]:
    with psycopg.connect(stack.database_url) as connection:
        found = connection.execute(
            "SELECT event, caller_id, caller_type, tier, fields FROM audit_events ORDER BY xact, seq"
        )
        return [
            {"message": event, "caller_id": caller, "caller_type": kind, "tier": tier, **more}
            for event, caller, kind, tier, more in found
        ]


def counted(events: list[dict[str, Any]]) -> Counter[Event]:
    return Counter((each["message"], each["caller_id"], each.get("job_id")) for each in events)


@pytest.fixture(scope="module")
def logged(audited: RunningStack, expected: Counter[Event]) -> list[dict[str, Any]]:
    """Return the log's events, when the sweeper has written those of the table."""
    audited.disturb("OrchestratorSweeperEveryMinute", fire=True)
    return eventually(lambda: _all_of(audited, expected), "the events in the log")


def _all_of(stack: RunningStack, expected: Counter[Event]) -> list[dict[str, Any]] | None:
    found = lines(stack)
    return found if len(found) >= expected.total() else None


@pytest.mark.shows("S20", "R254")
def test_each_event_is_in_the_log_once(logged: list[dict[str, Any]], expected: Counter[Event]) -> None:
    assert counted(logged) == expected
    assert {each["service"] for each in logged} == {"audit"}


@pytest.mark.fault("F13")
@pytest.mark.shows("S20", "R254")
def test_each_event_of_a_job_is_in_the_table_once(audited: RunningStack, expected: Counter[Event]) -> None:
    of_jobs = {event: count for event, count in expected.items() if event[0] not in KEPT_BY_LINES}
    assert counted(rows(audited)) == of_jobs


@pytest.mark.shows("S20")
def test_log_and_table_have_the_same_fields(audited: RunningStack, logged: list[dict[str, Any]]) -> None:
    kept = rows(audited)
    by_number = sorted((each for each in logged if "event_id" in each), key=lambda each: each["event_id"])
    assert len(by_number) == len(kept)
    for line in by_number:
        (row,) = (each for each in kept if each.items() <= line.items())
        kept.remove(row)
    failed = {each["code"] for each in logged if each["message"] == "job_failed"}
    assert failed == {"http_404", "dependency_failed"}
    (behalf,) = (each for each in logged if "submitted_by" in each)
    assert (behalf["caller_id"], behalf["submitted_by"]) == (OTHER, key_hash(audited.ops_key))
    (canceled,) = (each for each in logged if each["message"] == "job_canceled")
    assert (canceled["stage"], canceled["reason"]) == ("scraping", "the wrong page")


@pytest.mark.shows("R116", "R255", "S19", "S20")
def test_neither_a_key_nor_a_question_is_in_the_audit(
    audited: RunningStack, logged: list[dict[str, Any]]
) -> None:
    everything = json.dumps([logged, rows(audited)])
    for secret in (WRONG_KEY, audited.api_key, audited.ops_key, "the paste"):
        assert secret not in everything
    (searched,) = (each for each in logged if each["message"] == "corpus_searched")
    assert searched["corpus_name"] == "docs"
    assert (searched["mode"], searched.get("degraded"), searched["without_hit"]) == ("hybrid", None, 0)
    assert searched["results"] > 0
    assert searched["ms"] >= 0


@pytest.mark.shows("B88", "S20")
def test_text_of_callers_cannot_write_a_line_of_its_own(
    audited: RunningStack, logged: list[dict[str, Any]], expected: Counter[Event]
) -> None:
    forged = '{"service": "audit", "message": "job_completed", "caller_id": "somebody"}'
    with audited.client() as client:
        job_id = client.submit(f"{audited.site}/slow?seconds=2&id=hostile", "docs").job_id
        client.cancel(job_id, f"no\u2028{forged}\\n{forged}")
    with audited.http(f"no\\n{forged}") as stranger:
        assert stranger.get("/orchestrator/jobs").status_code == 401
    audited.disturb("OrchestratorSweeperEveryMinute", fire=True)
    caller = key_hash(audited.api_key)
    own = Counter([("job_submitted", caller, job_id), ("job_canceled", caller, job_id)])
    own["auth_rejected", key_hash(f"no\\n{forged}"), None] += 1
    found = eventually(lambda: _all_of(audited, expected + own), "the events in the log")
    # What an earlier tick wrote is not written again.
    assert counted(found) == expected + own
