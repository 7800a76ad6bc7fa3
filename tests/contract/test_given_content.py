"""Documents without a URL: one suite over every store, with the scrape worker."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexmill.contracts.content import MAX_UPLOAD_BYTES, Document, UploadRequest
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import ReplayRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import SubmitRequest, SubmitResponse
from indexmill.contracts.messages import ScrapeResult, ScrapeTask, StageResult, read
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.submission.uploads import GrantUpload, upload_key
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.scraper.worker import ScrapeBatch
from tests.support.job_stores import Jobs, Sent, embed_task, postgres_jobs
from tests.support.jobs import CALLER, chunked, embedded
from tests.support.scraper import ScraperHarness
from tests.twins.queues import InMemoryQueue
from tests.twins.uploads import InMemoryUploads
from tests.unit.scraper.pdf_file import pdf

NOTES = {"name": "notes.md", "text": "# Notes\n\nSome words."}


@dataclass
class Pipeline:
    """Jobs, and a scrape worker that shares their objects. Its site has no page: all content is given."""

    jobs: Jobs
    scraper: ScraperHarness = field(default_factory=ScraperHarness)
    callbacks: InMemoryQueue = field(default_factory=InMemoryQueue)
    sent: Sent = field(default_factory=Sent)

    def __post_init__(self) -> None:
        """Build the worker and the submit."""
        self.scraper.blobs = self.jobs.blobs
        self.worker = ScrapeBatch(self.scraper.parts(), self.callbacks, InMemoryQueue())
        blobs, clock = self.jobs.blobs, self.scraper.clock
        self.uploads = InMemoryUploads(blobs)
        self.grant_upload = GrantUpload(self.uploads, clock)
        self.submit_jobs = SubmitJobs(self.jobs.store, self.sent, blobs, self.uploads, clock=clock)

    def send(self, content: dict[str, Any], key: str | None = None, **more: Any) -> SubmitResponse:
        """Submit content as it comes over HTTP."""
        body = SubmitRequest.model_validate({"corpus_name": "docs", "content": content, **more})
        return self.submit_jobs(CALLER, body, "req-1", key)

    def submit(self, content: dict[str, Any], **more: Any) -> OutboxRow:
        """Submit content and return the message that was sent for it."""
        self.sent.rows.clear()
        self.send(content, **more)
        (row,) = self.sent.rows
        return row

    def scrape(self, row: OutboxRow) -> StageResult:
        """Let the worker handle a message and return its result."""
        task, deadline = read(ScrapeTask, row.payload), self.scraper.clock.monotonic() + 60
        self.worker([Delivery(task, 1, deadline, tries=1)])
        return read(StageResult, self.callbacks.bodies.pop())

    def document(self, row: OutboxRow) -> Document:
        """Let the worker handle a message and return the document."""
        result = self.scrape(row)
        assert isinstance(result, ScrapeResult)
        assert result.document is not None, result.failure
        return result.document

    def publish(self, row: OutboxRow) -> None:
        """Take a job from its first message until it is done."""
        self.jobs.changes(self.scrape(row))
        task = embed_task(self.jobs.changes(chunked(row.job_id, row.attempt))[0].outbox)
        assert self.jobs.publish(task.target.document_id, task.generation, row.job_id)
        self.jobs.changes(embedded(row.job_id, row.attempt))

    def replay(self, job_id: str, source: str | None = None) -> OutboxRow:
        """Repeat a job and return its message."""
        self.sent.rows.clear()
        request = ReplayRequest.model_validate({"source": source})
        ReplayJobs(self.jobs.store, self.sent).replay(CALLER, job_id, request, "r")
        (row,) = self.sent.rows
        return row


@pytest.fixture
def pipeline(database_url: str) -> Iterator[Pipeline]:
    with postgres_jobs(database_url) as jobs:
        made = Pipeline(jobs)
        yield made
        made.worker.close()


@pytest.mark.parametrize(
    ("content", "text", "kind"),
    [
        (NOTES, "# Notes\n\nSome words.", "text/markdown"),
        ({"name": "a.txt", "text": "Größe"}, "Größe", "text/plain"),
        (
            {
                "name": "page",
                "text": '<meta charset="latin1"><main><p>Größe</p></main>',
                "content_type": "text/html",
            },
            "Größe",
            "text/html",
        ),
        (
            {
                "name": "old.txt",
                "base64": base64.b64encode("Größe".encode("cp1252")).decode(),
                "content_type": "text/plain; charset=windows-1252",
            },
            "Größe",
            "text/plain",
        ),
        (
            {"name": "page.html", "base64": base64.b64encode(b"<html><p>Words.</p>").decode()},
            "Words.",
            "text/html",
        ),
        (
            {"name": "paper", "base64": base64.b64encode(pdf("Some words")).decode()},
            "Some words",
            "application/pdf",
        ),
    ],
)
def test_given_content_is_read_as_fetched_content_is(
    pipeline: Pipeline, content: dict[str, Any], text: str, kind: str
) -> None:
    row = pipeline.submit(content)
    found = pipeline.document(row)
    assert (found.text, found.content_type) == (text, kind)
    assert found.url == found.final_url == pipeline.jobs.job(row.job_id).url == f"upload:{content['name']}"
    # Raw content was written once, by the submit.
    assert pipeline.jobs.blobs.puts == [found.raw_ref.key if found.raw_ref else None]
    assert len(row.payload) < 1000


def test_given_content_that_looks_like_a_log_in_is_read_where_that_is_accepted(pipeline: Pipeline) -> None:
    page = b"<html><title>Sign in</title><form><input type=password></form><p>Words.</p>"
    content = {"name": "page.html", "base64": base64.b64encode(page).decode()}
    failure = pipeline.scrape(pipeline.submit(content)).failure
    assert failure is not None
    assert failure.code == "login_required"
    assert pipeline.document(pipeline.submit(content, accept=["login_required"], force=True)).text == "Words."


def granted(pipeline: Pipeline, data: bytes, caller: CallerContext = CALLER, **more: Any) -> str:
    """Upload bytes as a caller and return the upload's id."""
    asked = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}
    grant = pipeline.grant_upload(caller, UploadRequest.model_validate(asked))
    assert grant.url == upload_key(caller.caller_id, grant.upload_id)
    pipeline.jobs.blobs.objects[grant.url] = data
    return grant.upload_id


def test_an_upload_is_read_as_given_content_and_kept_as_raw_content(pipeline: Pipeline) -> None:
    upload_id = granted(pipeline, pdf("Some words"))
    row = pipeline.submit({"name": "paper", "upload_id": upload_id})
    found, blobs = pipeline.document(row), pipeline.jobs.blobs
    assert (found.text, found.content_type, found.url) == ("Some words", "application/pdf", "upload:paper")
    assert blobs.puts == [f"raw/{found.content_sha256[:2]}/{found.content_sha256}"]
    # The same bytes, uploaded again, are the same content.
    for same in (upload_id, granted(pipeline, pdf("Some words"))):
        again = pipeline.send({"name": "paper", "upload_id": same})
        assert (again.job_id, again.deduplicated) == (row.job_id, True)
    pipeline.publish(row)
    blobs.objects = {key: data for key, data in blobs.objects.items() if key.startswith("raw/")}
    assert pipeline.document(pipeline.replay(row.job_id)).text == "Some words"


def test_an_upload_has_the_type_that_it_was_granted_with(pipeline: Pipeline) -> None:
    data = "Größe".encode("cp1252")
    upload_id = granted(pipeline, data, content_type="text/plain; charset=windows-1252")
    assert pipeline.document(pipeline.submit({"name": "old", "upload_id": upload_id})).text == "Größe"


@pytest.mark.shows("B72")
def test_an_upload_of_another_caller_is_as_unknown_as_one_that_was_never_sent(pipeline: Pipeline) -> None:
    foreign = granted(pipeline, b"words", CallerContext("another-caller"))
    never = pipeline.grant_upload(CALLER, UploadRequest(size=5, sha256="0" * 64)).upload_id
    found = []
    for upload_id in (foreign, never, str(uuid.uuid4())):
        with pytest.raises(CallerError) as refused:
            pipeline.send({"name": "n", "upload_id": upload_id})
        found.append((refused.value.code, refused.value.message, refused.value.field))
    assert found == [("not_found", found[0][1], "body.content.upload_id")] * 3


def test_an_upload_that_is_too_large_or_changed_after_the_submit_is_not_read(pipeline: Pipeline) -> None:
    upload_id = granted(pipeline, b"words", content_type="text/plain")
    key, objects = upload_key(CALLER.caller_id, upload_id), pipeline.jobs.blobs.objects
    objects[key] = bytes(MAX_UPLOAD_BYTES + 1)
    with pytest.raises(CallerError) as refused:
        pipeline.send({"name": "n", "upload_id": upload_id})
    assert refused.value.code == "content_too_large"
    objects[key] = b"words"
    row = pipeline.submit({"name": "n", "upload_id": upload_id})
    objects[key] = b"other words"
    failure = pipeline.scrape(row).failure
    assert failure is not None
    assert failure.code == "content_corrupt"


def test_the_same_name_is_the_same_document_and_no_urls(pipeline: Pipeline) -> None:
    first = pipeline.submit(NOTES)
    pipeline.publish(first)
    newer = pipeline.submit({**NOTES, "text": "Other words."})
    other = pipeline.submit({**NOTES, "name": "Notes.md"})
    ids = {row.job_id: pipeline.jobs.job(row.job_id).document_id for row in (first, newer, other)}
    assert ids[first.job_id] == ids[newer.job_id] != ids[other.job_id]
    pipeline.publish(newer)
    with pytest.raises(CallerError) as refused:
        pipeline.jobs.send(url="upload:notes.md")
    assert refused.value.code == "url_scheme_not_allowed"


def test_a_composed_and_a_decomposed_name_are_one(pipeline: Pipeline) -> None:
    composed, decomposed = (pipeline.submit({**NOTES, "name": each}) for each in ("\u00e9 1", "n"))
    pipeline.publish(composed)
    again = pipeline.submit({**NOTES, "name": "e\u0301 1"})
    assert {pipeline.jobs.job(row.job_id).url for row in (composed, again)} == {"upload:%C3%A9%201"}
    assert pipeline.jobs.job(decomposed.job_id).url == "upload:n"


def test_other_content_is_refused_while_the_first_is_in_flight_and_equal_content_is_one_job(
    pipeline: Pipeline,
) -> None:
    first = pipeline.submit(NOTES)
    again = pipeline.send({**NOTES})
    assert (again.job_id, again.deduplicated) == (first.job_id, True)
    for _ in range(2):
        with pytest.raises(CallerError) as refused:
            pipeline.send({**NOTES, "text": "Other words."})
        assert (refused.value.code, refused.value.field) == ("invalid_transition", "body.content.name")
        # And so it is once the content was read.
        pipeline.jobs.changes(pipeline.scrape(first))
    assert pipeline.send({**NOTES, "text": "Other words."}, force=True).job_id != first.job_id


def test_a_replay_reads_what_was_given(pipeline: Pipeline) -> None:
    first = pipeline.submit(NOTES)
    pipeline.publish(first)
    for source in (None, "stored"):
        again = pipeline.replay(first.job_id, source)
        assert pipeline.document(again).text == NOTES["text"]
        pipeline.publish(again)
    with pytest.raises(CallerError) as refused:
        pipeline.replay(first.job_id, "fetch")
    assert (refused.value.code, refused.value.hint) == ("invalid_transition", 'Use "source": "stored".')


def test_content_that_could_not_be_read_is_replayed_and_retried_without_its_message(
    pipeline: Pipeline,
) -> None:
    picture = {"name": "a.png", "base64": base64.b64encode(b"\x89PNG\r\n").decode()}
    first = pipeline.submit(picture)
    pipeline.jobs.changes(pipeline.scrape(first))
    error = pipeline.jobs.job(first.job_id).error
    assert error is not None
    assert error.code == "unsupported_content_type"
    again = pipeline.replay(first.job_id)
    assert read(ScrapeTask, again.payload).stored == read(ScrapeTask, first.payload).stored
    pipeline.jobs.changes(pipeline.scrape(again))
    for forget in (False, True):
        if forget:
            pipeline.jobs.forget_payloads(again.job_id, "scraping")
        (row,) = pipeline.jobs.retry(again.job_id).outbox
        task = read(ScrapeTask, row.payload)
        assert (task.url, task.stored) == ("upload:a.png", read(ScrapeTask, first.payload).stored)
        pipeline.jobs.changes(pipeline.scrape(row))


def test_a_retry_never_replaces_newer_content(pipeline: Pipeline) -> None:
    first = pipeline.submit(NOTES)
    pipeline.jobs.cancel(first.job_id)
    pipeline.publish(pipeline.submit({**NOTES, "text": "Newer words."}))
    with pytest.raises(CallerError) as refused:
        pipeline.jobs.retry(first.job_id)
    assert refused.value.code == "invalid_transition"


def test_content_that_is_gone_is_missing_and_nothing_is_fetched(pipeline: Pipeline) -> None:
    row = pipeline.submit(NOTES)
    pipeline.jobs.blobs.objects.clear()
    pipeline.jobs.changes(pipeline.scrape(row))
    error = pipeline.jobs.job(row.job_id).error
    assert error is not None
    assert error.code == "content_missing"
    # A message of a document without a URL that says nothing of content: no site is asked.
    task = ScrapeTask(message_id="m", job_id=row.job_id, attempt=2, url="upload:notes.md")
    pipeline.worker([Delivery(task, 1, pipeline.scraper.clock.monotonic() + 60, tries=1)])
    failure = read(StageResult, pipeline.callbacks.bodies.pop()).failure
    assert failure is not None
    assert failure.code == "url_scheme_not_allowed"
    assert pipeline.scraper.fetcher.requested == []


def test_a_repeated_request_has_the_first_answer_and_another_content_is_a_conflict(
    jobs_in_postgres: Jobs,
) -> None:
    pipeline = Pipeline(jobs_in_postgres)
    first = pipeline.send(NOTES, key="k")
    assert pipeline.send(NOTES, key="k") == first
    with pytest.raises(CallerError) as refused:
        pipeline.send({**NOTES, "text": "Other words."}, key="k")
    assert refused.value.code == "idempotency_conflict"
    assert [job.job_id for job in pipeline.jobs.find(url="upload:notes.md")] == [first.job_id]
    pipeline.worker.close()


@pytest.fixture
def jobs_in_postgres(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as jobs:
        yield jobs
