"""Reasons for a job's state, and the stage that it is in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from local.logbook.records import Record
from local.trace.database import JobRecords
from local.trace.show import stage_lines
from local.trace.timeline import Stage, Timeline, timeline
from local.trace.waiting import StackStatus
from tests.unit.local.test_timeline import JOB, at, log, message, run, state

SCRAPING = [state(0, None, "pending"), state(0, "pending", "scraping")]
QUEUE = {"queue": "ScrapeQueue", "function": "ScraperWorker", "visibility_s": 360, "enabled": True}
QUEUE |= {"visibility_parameter": "ScrapeVisibility"}


def made(
    log_: list[Record],
    now_ms: int = 1000,
    *,
    messages: list[dict[str, Any]] | None = None,
    up_since: datetime | None = None,
    holds: Sequence[dict[str, Any]] = (),
    **job: Any,
) -> Timeline:
    """Return the timeline of a job in scraping."""
    sent = [message(0, 5)] if messages is None else messages
    records = JobRecords(JOB | {"status": "scraping"} | job, SCRAPING, sent, [], at(now_ms), holds)
    results = {"queue": "CallbacksQueue", "function": "OrchestratorResults", "visibility_s": 60}
    return timeline(records, log_, StackStatus(up_since, {"s": QUEUE, "r": results}))


def failing(
    began: int, took: int, why: str = "ValueError: no", function: str = "ScraperWorker"
) -> list[Record]:
    start, report = run(began, took, function)
    return [start, log(began + took, function, "END RequestId: r", failure=why), report]


def test_a_stage_that_runs_is_shown_with_its_time_so_far() -> None:
    found = made([log(200, "ScraperWorker", "START RequestId: r")])
    assert found.stages[-1] == Stage("scraping", 1, 1000.0, wait_ms=200.0, work_ms=800.0, running=True)
    assert list(stage_lines(found))[-2].endswith("running")
    assert found.events[-1].text == "ScraperWorker has been running for 0.8 s"
    assert found.waiting == ["ScraperWorker has been processing it for 0.8 s"]
    assert found.total_ms == 1000


def test_a_failed_call_is_failed_with_its_reason_and_its_message_hidden() -> None:
    found = made(failing(200, 50), 10_200)
    (event,) = [event for event in found.events if event.failed]
    assert event.text == "ScraperWorker failed after 50 ms: ValueError: no"
    failed, hidden, shorter = found.waiting
    assert failed == "ScraperWorker failed: ValueError: no"
    assert "in flight in ScrapeQueue" in hidden
    assert "redelivered at 12:06:00 UTC (in 350 s) at the latest" in hidden
    assert "--parameter ScrapeTimeout=5 --parameter ScrapeVisibility=30" in shorter


def test_an_unsent_message_is_shown_as_unsent() -> None:
    left = [message(0, None, stage="scraping", tries=0, last_error="queue_unavailable")]
    reported = "its scraping message is not sent yet (queue_unavailable); OrchestratorSweeper tries again"
    assert made([], messages=left).waiting == [reported]


def test_times_that_are_short_already_are_not_to_be_shortened() -> None:
    short = StackStatus(sources={"s": QUEUE | {"visibility_s": 30}})
    records = JobRecords(JOB | {"status": "scraping"}, SCRAPING, [message(0, 5)], [], at(1000))
    assert len(timeline(records, failing(200, 50), short).waiting) == 2
    embed = StackStatus(sources={"s": QUEUE | {"visibility_parameter": "EmbedVisibility"}})
    reason = timeline(records, failing(200, 50), embed).waiting[-1]
    assert reason.endswith("--parameter EmbedTimeout=10 --parameter EmbedVisibility=60")


def test_a_status_of_the_platform_is_a_failure_too() -> None:
    start, report = run(0, 50, "ScraperWorker")
    timed_out = log(50, "ScraperWorker", f"{report.message}Status: timeout\t")
    assert "ScraperWorker failed: timeout" in made([start, timed_out]).waiting


def test_a_returned_message_shows_when_it_is_visible_again() -> None:
    said = json.dumps(
        {"level": "INFO", "message": "message.given_back", "after_s": 7.5, "reason": "dns_error"}
    )
    start, report = run(200, 100, "ScraperWorker")
    found = made([start, log(250, "ScraperWorker", said, "stdout"), report])
    assert found.waiting == [
        "it was returned to the queue (dns_error); the next try is at 12:00:07 UTC (in 6.8 s)"
    ]


def test_a_recorded_wait_is_the_reason() -> None:
    later = at(1000) + timedelta(seconds=60)
    found = made(run(0, 9, "ScraperWorker"), next_retry_at=later, retry_cause="http_503", tries=2)
    assert found.waiting == ["try 2 failed (http_503); the next try is at 12:01:01 UTC (in 60 s)"]


def test_a_run_of_a_stack_that_ended_was_cut_off() -> None:
    found = made([log(200, "ScraperWorker", "START RequestId: r")], up_since=at(500))
    assert [event.text for event in found.events if event.failed] == [
        "ScraperWorker was killed when its stack ended"
    ]
    assert found.waiting[0] == "ScraperWorker failed: the stack ended meanwhile"


def test_a_result_that_cannot_be_applied_is_a_failure_of_the_orchestrator() -> None:
    logged = [*run(0, 10, "ScraperWorker"), *failing(20, 5, function="OrchestratorResults")]
    assert made(logged).waiting[0] == "OrchestratorResults failed: ValueError: no"
    (applied,) = made(run(0, 10, "ScraperWorker")).waiting
    assert "result has not been applied yet" in applied


def test_before_any_work_the_message_is_what_it_waits_for() -> None:
    assert made([]).waiting == ["no function has received its scraping message yet"]
    unsent = message(0, None, tries=2, last_error="queue_unavailable")
    (reason,) = made([], messages=[unsent]).waiting
    assert "2 tries failed, the last by queue_unavailable" in reason
    (pending,) = made([], status="pending", blocked_by="dependency").waiting
    assert pending == "it was accepted and has not been started: dependency"


def test_a_disabled_source_is_the_reason_before_any_work_too() -> None:
    records = JobRecords(JOB | {"status": "scraping"}, SCRAPING, [message(0, 5)], [], at(1000))
    off = QUEUE | {"function": "ScraperWorker", "enabled": False}
    reasons = timeline(records, [], StackStatus(None, {"s": off})).waiting
    assert reasons[-1] == "nothing consumes ScrapeQueue now: its source is disabled"


def test_a_job_at_its_end_waits_for_nothing() -> None:
    assert made(failing(0, 9), status="failed").waiting == []


def test_a_run_of_a_function_that_has_nothing_to_do_with_the_stage_explains_nothing() -> None:
    logged = [record for name in ("AuditWriter", "OrchestratorSweeper") for record in run(200, 9, name)]
    assert made(logged).waiting == ["no function has received its scraping message yet"]
    (reason,) = made([*run(0, 9, "ScraperWorker"), *logged]).waiting
    assert reason == "ScraperWorker has finished, and its result has not been applied yet"


def test_a_pause_is_named() -> None:
    since = at(0)
    holds = [
        {"kind": "paused", "subject": "embedding", "why": "not this stage", "since": since},
        {"kind": "paused", "subject": "*", "why": "the site asked us", "since": since},
    ]
    logged = [*run(0, 9, "ScraperWorker"), *run(200, 9, "AuditWriter")]
    reported = ["an operator has paused scraping since 12:00:00 UTC: the site asked us"]
    assert made(logged, holds=holds).waiting == reported
    assert made([], status="pending", blocked_by="domain", holds=holds).waiting == reported
    (reason,) = made([], status="pending", holds=holds[:1]).waiting
    assert reason == "it was accepted and has not been started; indexmill jobs --status pending shows why"


def test_the_site_of_a_job_that_was_not_started_is_named() -> None:
    held: dict[str, Any] = {"status": "pending", "blocked_by": "domain", "site_at": at(61_000)}
    starts = "; it starts at 12:01:01 UTC (in 60 s) at the earliest"
    for failing, why in (
        (True, "is left alone after failures"),
        (None, "gets as many requests as it may"),
    ):
        assert made([], **held, site_failing=failing).waiting == [f"its site a.example {why}{starts}"]


def test_an_open_breaker_is_named() -> None:
    breaker = {"kind": "breaker_open", "subject": "embedding", "why": None, "since": at(0)}
    assert "breaker" not in made([], holds=[breaker]).waiting[0]
    records = JobRecords(
        JOB | {"status": "embedding"},
        [*SCRAPING],
        [message(0, 5, stage="embedding")],
        [],
        at(1000),
        [breaker],
    )
    (reason,) = timeline(records, [*run(0, 9, "EmbeddingWorker"), *run(200, 9, "AuditWriter")]).waiting
    assert reason.startswith(
        "embedding waits for its breaker 'embedding', which has been open since 12:00:00"
    )


def test_a_failing_site_is_named_with_its_last_error() -> None:
    error = {"code": "dns_error", "message": "The name of the site could not be resolved"}
    later = at(1000) + timedelta(seconds=60)
    waits = {"next_retry_at": later, "retry_cause": "domain_failing", "tries": 3, "last_error": error}
    (reason,) = made(run(0, 9, "ScraperWorker"), **waits).waiting
    assert reason == (
        "its site a.example is left alone after failures (dns_error: The name of the site could not be "
        "resolved); the next try is at 12:01:01 UTC (in 60 s)"
    )
    (reason,) = made(run(0, 9, "ScraperWorker"), **waits | {"retry_cause": "dns_error"}).waiting
    assert reason.startswith("try 3 failed (dns_error: The name of the site could not be resolved); the next")
