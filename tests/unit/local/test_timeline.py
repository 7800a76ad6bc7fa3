"""A job's events in order, and the time spent in each stage."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from local.logbook.records import Record, parse
from local.trace.database import JobRecords
from local.trace.show import as_json, heading, stage_lines
from local.trace.timeline import Stage, Timeline, timeline

BEGAN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
JOB = {"id": "job-1", "status": "done", "url": "https://a.example/", "corpus_name": None, "title": "A"}
JOB |= {"chunk_count": 2, "attempt": 1, "created_at": BEGAN, "updated_at": BEGAN}
JOB |= {"tries": 0, "next_retry_at": None, "retry_cause": None, "blocked_by": None}
JOB |= {"canonical_url": "https://a.example/", "last_error": None}


def at(ms: int) -> datetime:
    return BEGAN + timedelta(milliseconds=ms)


def state(ms: int, before: str | None, after: str, **more: Any) -> dict[str, Any]:
    row = {
        "attempt": 1,
        "from_status": before,
        "to_status": after,
        "at": at(ms),
        "cause": "c",
        "detail": None,
    }
    return row | more


def message(ms: int, sent: int | None, stage: str = "scraping", **more: Any) -> dict[str, Any]:
    row = {"id": "m", "attempt": 1, "stage": stage, "created_at": at(ms), "size": 9}
    row |= {"sent_at": None if sent is None else at(sent), "tries": 1, "parked_at": None, "last_error": None}
    return row | more


def log(ms: int, function: str, text: str, stream: str = "platform", **more: Any) -> Record:
    when = f"{at(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
    known = {"at": when, "function": function, "request_id": f"{function}-1", "stream": stream}
    record = parse(json.dumps({**known, "message": text, **more}))
    assert record is not None
    return record


def run(began: int, took: int, function: str, **more: Any) -> list[Record]:
    report = f"REPORT RequestId: r\tDuration: {took}.00 ms\tBilled Duration: 1 ms\tMemory Size: 1 MB\t"
    return [
        log(began, function, "START RequestId: r", **more),
        log(began + took, function, report + "Max Memory Used: 1 MB\t"),
    ]


def made(history: list[dict[str, Any]], messages: list[dict[str, Any]], records: list[Record]) -> Timeline:
    return timeline(JobRecords(JOB, history, messages, [], BEGAN), records)


def test_a_stages_time_is_split_into_waiting_work_and_report() -> None:
    history = [state(0, None, "pending"), state(0, "pending", "scraping"), state(100, "scraping", "done")]
    found = made(history, [message(0, 5)], run(30, 50, "Worker", jobs=["job-1"]))
    assert found.total_ms == 100
    assert found.stages == [
        Stage("pending", 1, 0.0),
        Stage("scraping", 1, 100.0, wait_ms=30.0, work_ms=50.0, report_ms=20.0),
    ]
    assert [event.text for event in found.events] == [
        "accepted: pending (c)",
        "pending → scraping (c)",
        "scraping message written, 9 bytes",
        "scraping message sent after 5 ms",
        "Worker started (Worker-1)",
        "Worker ended after 50 ms",
        "scraping → done (c)",
    ]


def test_a_stage_that_was_tried_again_counts_its_last_work() -> None:
    history = [state(0, None, "scraping"), state(900, "scraping", "done")]
    tried = [*run(100, 50, "Worker"), *run(500, 100, "OtherWorker")]
    (stage,) = made(history, [], tried).stages
    assert (stage.wait_ms, stage.work_ms, stage.report_ms) == (500.0, 100.0, 300.0)


def test_the_coordinators_own_work_is_no_stages() -> None:
    history = [state(0, None, "scraping"), state(100, "scraping", "done")]
    assert made(history, [], run(10, 5, "OrchestratorResults")).stages == [Stage("scraping", 1, 100.0)]


def test_the_time_between_failure_and_retry_belongs_to_no_stage() -> None:
    failed = {"code": "http_404", "message": "gone"}
    history = [
        state(0, None, "scraping"),
        state(10, "scraping", "failed", detail=failed),
        state(5000, "failed", "scraping", attempt=2),
        state(5100, "scraping", "done", attempt=2),
    ]
    found = made(history, [], [])
    assert [(stage.name, stage.attempt, stage.total_ms) for stage in found.stages] == [
        ("scraping", 1, 10.0),
        ("scraping", 2, 100.0),
    ]
    (event,) = [event for event in found.events if event.failed]
    assert event.text == "scraping → failed (c): http_404, gone"
    assert any(text.startswith("scraping #2") for text in stage_lines(found))


def test_trouble_is_marked() -> None:
    parked = message(0, None, parked_at=at(50), last_error="no queue")
    error = json.dumps({"level": "ERROR", "message": "broke", "job_id": "job-1", "code": "x"})
    found = made([], [parked], [log(60, "Worker", error, "stdout")])
    assert [event.text for event in found.events if event.failed] == [
        "scraping message given up: no queue",
        "Worker: broke code=x",
    ]


def test_an_exception_that_was_logged_is_below_its_line() -> None:
    said = json.dumps(
        {"level": "ERROR", "message": "failed", "job_id": "job-1", "exception": "a\nKeyError: b"}
    )
    (event,) = made([state(0, None, "pending")], [], [log(5, "Worker", said, "stdout")]).events[1:]
    first, *trace = event.text.splitlines()
    assert (first, [line.strip() for line in trace], event.failed) == (
        "Worker: failed",
        ["a", "KeyError: b"],
        True,
    )


def test_programs_get_the_same() -> None:
    history = [state(0, None, "scraping"), state(250, "scraping", "done")]
    found = made(history, [], [])
    document = json.loads(json.dumps(as_json(found), default=str))
    assert [event["offset_ms"] for event in document["events"]] == [0.0, 250.0]
    assert document["stages"][0]["total_ms"] == 250.0
    assert next(heading(found)) == "job job-1  done, attempt 1"
