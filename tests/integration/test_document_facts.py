"""Facts of documents, from the page and its caller through the messages to the published row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from psycopg.rows import dict_row
from pydantic import ValidationError

from indexmill.contracts.content import MAX_METADATA_BYTES, SourceText
from indexmill.contracts.cost import JobChunks
from indexmill.contracts.job import Job, JobStatus, SubmitRequest
from indexmill.contracts.messages import ChunkResult, EmbedResult, EmbedTask, StageResult, read
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.worker import EmbedBatch
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.platform.postgres.database import Database
from indexmill.scraper.ports import Fetched
from tests.support.cycles import PAGE, RECIPE, Cycle, cycle_over
from tests.support.job_stores import Sent
from tests.support.jobs import CALLER, chunked, failed
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue
from tests.twins.vector_cache import InMemoryVectorCache

if TYPE_CHECKING:
    from indexmill.orchestrator.outbox.relay import Relay
    from indexmill.platform.aws.s3_blobs import BlobStore

pytestmark = pytest.mark.integration

DATED = (
    '<html lang="en-GB"><head><title>T</title><meta property="article:published_time" content="2026-03-14">'
    "</head><body><main><p>{}</p></main></body></html>"
)
DAY = datetime(2026, 3, 14, tzinfo=UTC)
COLUMNS = "content_type, language, published_at, fetched_at, indexed_at, metadata, published, updated_at"


@dataclass
class World:
    """A cycle whose documents are published by the embed worker."""

    cycle: Cycle
    url: str
    embedder: HashEmbedder = field(default_factory=HashEmbedder)

    def __post_init__(self) -> None:
        """Build the worker over the cycle's database."""
        self.database = Database(self.url)
        self.index = PgVectorIndex(self.database)
        self.results = InMemoryQueue()
        blobs, clock = cast("BlobStore", self.cycle.jobs.blobs), self.cycle.scraper.clock
        self.worker = EmbedBatch(self.index, self.embedder, blobs, self.results, InMemoryVectorCache(), clock)
        space = self.embedder.space
        self.recipe = {**RECIPE, "model": space.model, "dimension": space.dimension}

    def serve(self, words: str) -> None:
        self.cycle.scraper.fetcher.pages[PAGE] = Fetched(
            PAGE, 200, "text/html", "utf-8", DATED.format(words).encode()
        )

    def chunk(self, row: OutboxRow) -> OutboxRow:
        """Take a job whose page was fetched to its embed message."""
        result = chunked(row.job_id, row.attempt)
        assert isinstance(result, ChunkResult)
        assert result.chunked is not None
        # A version whose text is not kept would be processed again, though its page did not change.
        result.chunked.source = SourceText.of("Some words.", result.chunked.chunks or [])
        (change,) = self.cycle.jobs.changes(result)
        return change.outbox[0]

    def embed(self, row: OutboxRow) -> StageResult:
        task = read(EmbedTask, row.payload)
        self.worker([Delivery(task, 1, self.cycle.scraper.clock.monotonic() + 60, tries=1)])
        return read(StageResult, self.results.bodies.pop())

    def visit(self, **request: Any) -> Job:
        """Take a job to its end."""
        row = self.cycle.submit(recipe=self.recipe, **request)
        (change,) = self.cycle.jobs.changes(self.cycle.scrape(row))
        if change.status is not JobStatus.DONE:
            self.cycle.jobs.changes(self.embed(self.chunk(row)))
        return self.cycle.jobs.job(row.job_id)

    def document(self) -> dict[str, Any]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            (row,) = connection.execute(f"SELECT {COLUMNS} FROM documents").fetchall()
            return row


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with cycle_over(database_url) as cycle:
        made = World(cycle, database_url)
        made.serve("Some words.")
        yield made
        made.database.close()


@pytest.mark.shows("P069", "X1")
def test_a_published_document_has_the_facts_of_its_page(world: World) -> None:
    job = world.visit(metadata={"team": "harbour", "naïve.key": "ü"})
    row = world.document()
    assert (row["content_type"], row["language"], row["published_at"]) == ("text/html", "en-GB", DAY)
    assert row["fetched_at"] == world.cycle.scraper.clock.now()
    assert row["metadata"] == job.metadata == {"team": "harbour", "naïve.key": "ü"}
    assert row["indexed_at"] == job.searchable_at
    assert job.generation == row["published"]
    assert job.chunks == JobChunks(total=1, reused=0, embedded=1, removed=0)


def test_a_claim_that_is_fenced_moves_no_time_since_when_a_document_is_searchable(world: World) -> None:
    first = world.visit()
    world.serve("Other words.")
    row = world.cycle.submit(recipe=world.recipe, metadata={"late": "yes"})
    world.cycle.jobs.changes(world.cycle.scrape(row))
    message = world.chunk(row)
    world.cycle.jobs.changes(failed(row.job_id, "embedding"))
    result = world.embed(message)
    assert isinstance(result, EmbedResult)
    assert result.embedded is not None
    assert (result.embedded.published, result.embedded.searchable_at) == (False, None)
    after = world.document()
    assert after["updated_at"] > after["indexed_at"] == first.searchable_at
    assert (after["metadata"], after["published"]) == (None, first.generation)


def test_changed_metadata_of_an_unchanged_page_is_published_without_embedding(world: World) -> None:
    first = world.visit(metadata={"team": "harbour"})
    before, calls = world.document(), len(world.embedder.calls)
    world.cycle.scraper.clock.tick(60)
    job = world.visit(metadata={"team": "yard"})
    after = world.document()
    assert (job.unchanged, after["metadata"], len(world.embedder.calls)) == (True, {"team": "yard"}, calls)
    assert after["fetched_at"] == before["fetched_at"] + timedelta(seconds=60)
    assert (after["indexed_at"], after["published"]) == (before["indexed_at"], before["published"])
    assert (job.searchable_at, job.generation) == (first.searchable_at, first.generation)
    assert job.chunks == JobChunks(total=1, reused=1, embedded=0, removed=0)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, {"a": "1"}), ({}, {}), ({"b": "2"}, {"b": "2"})],
    ids=["none", "empty", "other"],
)
@pytest.mark.parametrize("changed", [False, True])
def test_metadata_stays_until_a_submit_replaces_it(
    world: World, given: dict[str, str] | None, kept: dict[str, str], *, changed: bool
) -> None:
    world.visit(metadata={"a": "1"})
    if changed:
        world.serve("Other words.")
    job = world.visit(**({} if given is None else {"metadata": given}))
    assert (world.document()["metadata"], job.metadata) == (kept, given)


@pytest.mark.shows("X1")
def test_a_job_counts_what_its_version_uses_again_and_what_it_removes(world: World) -> None:
    world.visit()
    world.serve("Other words.")
    row = world.cycle.submit(recipe=world.recipe)
    world.cycle.jobs.changes(world.cycle.scrape(row))
    (change,) = world.cycle.jobs.changes(chunked(row.job_id, row.attempt, "Other words."))
    world.cycle.jobs.changes(world.embed(change.outbox[0]))
    job = world.cycle.jobs.job(row.job_id)
    assert job.chunks == JobChunks(total=1, reused=0, embedded=1, removed=1)


@pytest.mark.shows("X1")
def test_a_job_whose_worker_died_behind_its_publish_says_since_when_it_is_searchable(world: World) -> None:
    row = world.cycle.submit(recipe=world.recipe)
    world.cycle.jobs.changes(world.cycle.scrape(row))
    world.embed(world.chunk(row))
    world.cycle.jobs.changes(failed(row.job_id, "embedding"))
    job, document = world.cycle.jobs.job(row.job_id), world.document()
    assert job.status is JobStatus.DONE
    assert (job.searchable_at, job.generation) == (document["indexed_at"], document["published"])


def test_a_redelivered_message_reports_when_its_version_became_searchable(world: World) -> None:
    row = world.cycle.submit(recipe=world.recipe)
    world.cycle.jobs.changes(world.cycle.scrape(row))
    message = world.chunk(row)
    for result in (world.embed(message), world.embed(message)):
        assert isinstance(result, EmbedResult)
        assert result.embedded is not None
        assert result.embedded.searchable_at == world.document()["indexed_at"]


def test_metadata_of_a_retried_job_is_published(world: World) -> None:
    row = world.cycle.submit(recipe=world.recipe, metadata={"a": "1"})
    world.cycle.jobs.changes(world.cycle.scrape(row))
    world.chunk(row)
    world.cycle.jobs.changes(failed(row.job_id, "embedding"))
    sent = Sent()
    RetryJobs(world.cycle.jobs.store, cast("Relay", sent)).one(CALLER, row.job_id, "r")
    world.cycle.jobs.changes(world.embed(sent.rows[0]))
    assert world.document()["metadata"] == {"a": "1"}


def test_other_metadata_than_that_of_the_job_in_flight_is_not_lost(world: World) -> None:
    row = world.cycle.submit(recipe=world.recipe, metadata={"a": "1"})
    assert world.cycle.jobs.job(row.job_id).metadata == {"a": "1"}
    beside = world.cycle.submit(recipe=world.recipe, metadata={"a": "2"})
    assert beside.job_id != row.job_id
    for each in (row, beside):
        world.cycle.jobs.changes(world.cycle.scrape(each))
        world.cycle.jobs.changes(world.embed(world.chunk(each)))
    assert world.document()["metadata"] == {"a": "2"}


LONG = {f"k{at}": "v" * 200 for at in range(20)}


@pytest.mark.parametrize(
    ("metadata", "where"),
    [
        ({"": "v"}, "metadata"),
        ({"k" * 65: "v"}, "metadata"),
        ({"k": "v" * 513}, "metadata.k"),
        ({f"k{at}": "v" for at in range(21)}, "metadata"),
        (LONG, "metadata"),
        ({"k": 1}, "metadata.k"),
        ({"k": None}, "metadata.k"),
        ({"k": ["v"]}, "metadata.k"),
        ({"k\0": "v"}, "metadata"),
        ({"k": "\ud800"}, "metadata.k"),
        ("text", "metadata"),
    ],
)
def test_metadata_has_bounds(metadata: Any, where: str) -> None:
    with pytest.raises(ValidationError) as raised:
        SubmitRequest.model_validate({"url": PAGE, "metadata": metadata})
    (error,) = raised.value.errors()
    assert ".".join(map(str, error["loc"])).startswith(where)


def test_metadata_may_reach_its_bounds() -> None:
    widest = {"ü" * 64: "x" * 512, **{f"{at:02}": "y" * 507 for at in range(6)}}
    size = len(json.dumps({**widest, "z": ""}, ensure_ascii=False, separators=(",", ":")).encode())
    fits = {**widest, "z": "z" * (MAX_METADATA_BYTES - size)}
    assert SubmitRequest.model_validate({"url": PAGE, "metadata": fits}).metadata == fits
    with pytest.raises(ValidationError, match="4,096 bytes"):
        SubmitRequest.model_validate({"url": PAGE, "metadata": {**fits, "z": fits["z"] + "z"}})
