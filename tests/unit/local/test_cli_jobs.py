"""The job list, and the note on an event without records."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any, get_args

from rich.console import Console

from indexmill.client import Client
from indexmill.contracts.job import Job, JobError, JobList, JobStatus, LastError, Progress, Waiting
from indexmill.contracts.pipeline import STAGES
from local.cli import jobs
from local.cli.invoke import _unhandled

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def job(number: int, status: str = "done", **more: Any) -> Job:
    known = {"job_id": f"job-{number}", "status": JobStatus(status), "url": "https://a.example/[b]"}
    known |= {"corpus_name": None, "created_at": NOW, "updated_at": NOW, "user_message": ""}
    return Job(**known, **({"progress": Progress(stage=1, of=3), "attempt": 1} | more))


class Paged(Client):
    """Client of a service with five jobs and pages of two."""

    def __init__(self) -> None:
        super().__init__("http://nowhere", "key")
        self.asked: list[dict[str, Any]] = []

    def list(self, **filters: str | int | None) -> JobList:
        self.asked.append(filters)
        start = int(filters["cursor"] or 0)
        found = [job(number) for number in range(start, min(start + 2, 5))]
        return JobList(jobs=found, count=len(found), next_cursor=str(start + 2) if start < 3 else None)


def test_pages_are_read_to_their_end_with_the_same_filters() -> None:
    with Paged() as client:
        found = list(jobs.pages(client, 2, {"status": "done"}))
    assert [each.job_id for each in found] == [f"job-{number}" for number in range(5)]
    assert [each["cursor"] for each in client.asked] == [None, "2", "4"]
    assert {each["status"] for each in client.asked} == {"done"}


def test_the_choices_are_those_of_the_contract() -> None:
    assert get_args(jobs.Status) == tuple(JobStatus)
    assert get_args(jobs.Stage) == tuple(stage.name for stage in STAGES)


def test_a_row_says_why_a_job_failed_or_waits() -> None:
    error = JobError(stage="scraping", code="max_retries_exceeded", cause="dns_error", message="m", at=NOW)
    screen = Console(file=io.StringIO(), width=200)
    rows = [job(1, "failed", error=error), job(2, "scraping", attempts=2, next_retry_at=NOW), job(3)]
    rows.append(job(4, "pending", waiting=Waiting(reason="quota_hourly", position=1)))
    down = LastError(code="embedding_unavailable", message="m", at=NOW)
    rows.append(job(5, "embedding", next_retry_at=NOW, last_error=down))
    rows.append(job(6, "embedding", next_retry_at=NOW, waiting=Waiting(reason="breaker_open")))
    with screen.capture() as captured:
        screen.print(jobs._table(rows))
    head, failed, waiting, done, pending, down_now, held = captured.get().splitlines()
    assert head.split() == ["job", "status", "corpus", "submitted", "url"]
    assert failed.split() == [
        *("job-1", "failed", "default", "2026-01-31", "12:00:00"),
        *("https://a.example/[b]", "scraping:", "dns_error"),
    ]
    assert waiting.rstrip().endswith("try 2 failed, again at 12:00:00")
    assert done.rstrip().endswith("https://a.example/[b]")
    assert pending.rstrip().endswith("waits: quota_hourly")
    assert down_now.rstrip().endswith("]  waits (embedding_unavailable), again at 12:00:00")
    assert held.rstrip().endswith("]  waits: breaker_open, again at 12:00:00")


def test_an_event_without_records_was_not_handled() -> None:
    fine = '{"batchItemFailures": []}'
    for event in (b"{}", b'{"Records": []}', b"[]"):
        message = _unhandled("ScraperWorker", event, fine)
        assert message.startswith("no message was processed")
        assert message.endswith("indexmill events sqs-scrape")
    assert _unhandled("ScraperWorker", b'{"Records": [{}]}', fine) == ""
    assert _unhandled("OrchestratorSweeper", b"{}", '{"relayed": 0}') == ""


def test_messages_that_would_be_redelivered_are_counted() -> None:
    failed = '{"batchItemFailures": [{"itemIdentifier": "m"}]}'
    assert _unhandled("ScraperWorker", b'{"Records": [{}, {}]}', failed).startswith("1 of 2 messages")
