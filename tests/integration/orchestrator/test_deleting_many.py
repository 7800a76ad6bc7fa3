"""Deletion by filter and of a whole corpus, confirmed by a dry run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.identity import CallerContext, CorpusIsolation, corpus_key, document_id
from indexmill.contracts.job import SubmitRequest
from indexmill.orchestrator.actions import delete
from indexmill.orchestrator.results import deletions
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.platform.postgres.database import Database
from local.backends.ministack import MiniStack
from tests.support.deletions import Aws, DeletionHarness
from tests.support.jobs import CALLER, INTERNAL
from tests.support.stack import eventually

pytestmark = pytest.mark.integration

KEY = corpus_key(CALLER.caller_id, "docs")
PREFIX = "https://site.example/old/"
OLD = [f"{PREFIX}{at}" for at in range(5)]
NEW = "https://site.example/new"
EVERYTHING = {"everything": True}
FILTER = {"filter": {"url_prefix": PREFIX}}
_numbers = itertools.count(1)
WAITING = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
T = TypeVar("T")


@pytest.fixture
def aws(ministack: MiniStack) -> Aws:
    return Aws(ministack, f"many-deletions-{next(_numbers)}")


@pytest.fixture
def world(database_url: str, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeletionHarness]:
    for module in (delete, deletions):
        monkeypatch.setattr(module, "PART", 2)
    made = DeletionHarness(database_url, aws)
    yield made
    made.close()


def index(world: DeletionHarness, *urls: str, ctx: CallerContext = CALLER) -> list[str]:
    ids = [world.submit(url, ctx) for url in urls]
    world.run()
    return ids


def urls(world: DeletionHarness) -> list[str]:
    return [
        url for (url,) in world.rows("SELECT url FROM documents WHERE published IS NOT NULL ORDER BY url")
    ]


@pytest.mark.shows("P071")
def test_a_filter_deletes_what_matches_in_parts_and_nothing_else(world: DeletionHarness) -> None:
    index(world, *OLD, NEW)
    failed = world.submit(f"{PREFIX}never-published")
    found = world.preview(**FILTER)
    assert (found.documents, found.chunks) == (6, 5)
    job_id = world.delete(**FILTER, confirm=found.confirm).job_id
    assert world.job(failed).status == "failed"
    world.run()
    world.report_deletions()
    report = world.report(job_id)
    ids = sorted(document_id(KEY, url) for url in (*OLD, f"{PREFIX}never-published"))
    assert (report.documents, report.document_ids, report.what["kind"]) == (6, ids, "filter")
    assert (report.removed["chunks"].before, report.removed["chunks"].after) == (5, 0)
    assert (urls(world), world.status(job_id)) == ([NEW], "done")


@pytest.mark.shows("P071", "S38", "R266")
def test_a_corpus_is_deleted_with_its_name_and_nothing_of_before_comes_back(world: DeletionHarness) -> None:
    index(world, *OLD, NEW)
    messages = [row[0] for row in world.rows("SELECT payload FROM outbox WHERE stage = 'embedding'")]
    pending = world.submit("https://site.example/pending")
    scrapes = list(world.scrape.bodies)
    confirm = world.preview(**EVERYTHING).confirm
    job_id = world.delete(**EVERYTHING, confirm=confirm).job_id
    assert world.job(pending).status == "failed"
    world.run()
    world.report_deletions()
    assert world.report(job_id).documents == 7
    assert world.rows("SELECT FROM corpora") == world.rows("SELECT FROM corpus_totals") == []
    world.deliver(*map(world.scraped, scrapes))
    world.deliver(*world.embedded(messages))
    for table in ("corpora", "documents", "chunks", "postings", "vectors", "memberships"):
        assert world.rows(f"SELECT FROM {table}") == [], table
    index(world, NEW)
    world.deliver(*world.embedded(messages))
    assert urls(world) == [NEW]
    assert world.rows("SELECT corpus_key FROM corpora WHERE corpus_key = %s", KEY) == []


def test_each_part_counts_as_an_admission(world: DeletionHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """By which the alarm of endless loops knows how many messages there may be."""
    index(world, *OLD)
    confirm = world.preview(**FILTER).confirm
    capsys.readouterr()
    world.delete(**FILTER, confirm=confirm)
    world.run()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert sum(sum(line.get("jobs_admitted_total", [])) for line in lines) == 3


def test_a_corpus_that_is_in_use_again_stays_with_what_is_new(world: DeletionHarness) -> None:
    index(world, *OLD)
    confirm = world.preview(**EVERYTHING).confirm
    world.delete(**EVERYTHING, confirm=confirm)
    parts = list(world.embed.bodies)
    world.embed.bodies.clear()
    index(world, NEW, OLD[0])
    world.embed.bodies.extend(parts)
    world.run()
    world.report_deletions()
    assert urls(world) == sorted([NEW, OLD[0]])


@pytest.mark.shows("P071")
def test_what_is_submitted_while_its_corpus_is_deleted_is_canceled(
    world: DeletionHarness, database_url: str
) -> None:
    """The submit is committed when the deletion has looked for jobs in flight, and has not committed yet."""
    index(world, OLD[0])
    confirm = world.preview(**EVERYTHING).confirm
    ids = list[str]()
    with ThreadPoolExecutor(1) as pool:
        deleting: list[Future[object]] = []

        def delete_meanwhile() -> None:
            deleting.append(pool.submit(delete_elsewhere, world, database_url, confirm))
            eventually(lambda: world.rows(WAITING) or None, "the deletion waits for the submit")

        submit = replace(world.submit_jobs, store=BeforeCommit(world.database, delete_meanwhile))
        request = SubmitRequest(urls=[NEW, OLD[1]], corpus_name="docs")
        ids = submit(CALLER, request, "req-1").job_ids or []
        deleting[0].result()
    # The deletion's own message is first, while the jobs wait for a worker.
    waiting, world.scrape.bodies[:] = list(world.scrape.bodies), []
    world.run(turns=20)
    world.scrape.bodies.extend(waiting)
    world.run(turns=20)
    assert [(job.status, job.error and job.error.code) for job in map(world.job, ids)] == [
        ("failed", "canceled")
    ] * 2
    assert world.rows("SELECT FROM chunks") == world.rows("SELECT FROM corpus_names") == []
    world.database.connection().execute("UPDATE jobs SET created_at = now() WHERE job_type <> 'delete'")
    for again in (lambda: world.replay(ids[0]), lambda: world.retry_jobs.one(CALLER, ids[1])):
        with pytest.raises(CallerError, match="deleted"):
            again()
    index(world, NEW)
    assert urls(world) == [NEW]


class BeforeCommit(JobStore):
    """Calls a function when the work of a transaction is done, in front of its commit."""

    def __init__(self, database: Database, call: Callable[[], None]) -> None:
        """As the store that it replaces."""
        super().__init__(database)
        self.call = call

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        def called(tx: JobsTx) -> T:
            found = work(tx)
            self.call()
            return found

        return super().transaction(called)


def delete_elsewhere(world: DeletionHarness, url: str, confirm: str | None) -> None:
    database = Database(url)
    wanted = {"everything": True, "confirm": confirm}
    request = {"job_type": "delete", "corpus_name": "docs", "delete": wanted}
    delete = replace(world.delete_documents, store=JobStore(database))
    delete(CALLER, SubmitRequest.model_validate(request), "req-2")
    database.close()


def test_a_second_deletion_of_the_same_documents_leaves_the_report_of_the_first(
    world: DeletionHarness,
) -> None:
    index(world, *OLD[:2])
    confirm = world.preview(**FILTER).confirm
    first = world.delete(**FILTER, confirm=confirm).job_id
    world.run()
    index(world, OLD[0])
    second = world.delete(**FILTER, confirm=confirm).job_id
    world.run()
    world.report_deletions()
    ids = sorted(document_id(KEY, url) for url in OLD[:2])
    assert (world.report(first).documents, world.report(first).document_ids) == (2, ids)
    again = [document_id(KEY, OLD[0])]
    assert (world.report(second).documents, world.report(second).document_ids) == (1, again)
    assert urls(world) == []


@pytest.mark.parametrize("what", [FILTER, EVERYTHING])
def test_it_takes_the_token_of_the_same_dry_run_and_no_more_than_that_found(
    world: DeletionHarness, what: dict[str, object]
) -> None:
    index(world, OLD[0])
    good = world.preview(**what).confirm
    other = world.preview(**(EVERYTHING if what is FILTER else FILTER)).confirm
    for confirm in (None, "x", other, f"{good}x"):
        with pytest.raises(CallerError) as refused:
            world.delete(**what, **({} if confirm is None else {"confirm": confirm}))
        assert (refused.value.code, refused.value.field) == ("validation_error", "body.delete.confirm")
    world.submit(OLD[1])
    with pytest.raises(CallerError) as more:
        world.delete(**what, confirm=good)
    assert more.value.code == "confirm_mismatch"
    late = world.preview(**what).confirm
    world.clock.tick(timedelta(minutes=10, seconds=1).total_seconds())
    with pytest.raises(CallerError) as expired:
        world.delete(**what, confirm=late)
    assert expired.value.code == "validation_error"
    assert urls(world) == [OLD[0]]


def test_an_unknown_corpus_and_a_filter_that_nothing_matches_are_not_found(world: DeletionHarness) -> None:
    index(world, NEW)
    for corpus, what, field in (
        ("docs", FILTER, "body.delete"),
        ("other", FILTER, "body.corpus_name"),
        ("other", EVERYTHING, "body.corpus_name"),
    ):
        with pytest.raises(CallerError) as refused:
            world.preview(corpus_name=corpus, **what)
        assert (refused.value.code, refused.value.field) == ("not_found", field)


def test_in_a_shared_corpus_a_filter_means_what_the_caller_alone_submitted(
    database_url: str, aws: Aws
) -> None:
    world = DeletionHarness(database_url, aws, CorpusIsolation.SHARED)
    other = CallerContext("feedfeedfeedfeed")
    index(world, *OLD)
    index(world, OLD[0], ctx=other)
    assert world.preview(**FILTER).documents == 4
    with pytest.raises(CallerError) as refused:
        world.preview(**EVERYTHING)
    assert refused.value.code == "forbidden"
    with pytest.raises(CallerError) as nothing:
        world.preview(other, **FILTER)
    assert nothing.value.code == "not_found"
    world.delete(**FILTER, confirm=world.preview(**FILTER).confirm)
    world.run()
    assert urls(world) == [OLD[0]]
    confirm = world.preview(INTERNAL, **EVERYTHING).confirm
    world.delete(INTERNAL, **EVERYTHING, confirm=confirm)
    world.run()
    assert urls(world) == []
    world.close()
