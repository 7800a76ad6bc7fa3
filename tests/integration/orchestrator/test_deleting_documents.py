"""Deletion of documents on Postgres and the real index, and what comes back afterwards: nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.identity import CallerContext, CorpusIsolation, corpus_key, document_id
from indexmill.contracts.job import SubmitRequest
from indexmill.contracts.messages import EmbedTask, Target, read
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.worker import EmbedBatch
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.platform.postgres.database import Database
from local.backends.ministack import MiniStack
from tests.support.deletions import Aws, DeletionHarness
from tests.support.jobs import CALLER, INTERNAL
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue
from tests.twins.vector_cache import InMemoryVectorCache

pytestmark = pytest.mark.integration

KEY = corpus_key(CALLER.caller_id, "docs")
ONE, OTHER = "https://site.example/one", "https://site.example/other"
CANARY = "xylophonist"
_TURNS = 6
_numbers = itertools.count(1)


@pytest.fixture
def aws(ministack: MiniStack) -> Aws:
    return Aws(ministack, f"deletions-{next(_numbers)}")


@pytest.fixture
def world(database_url: str, aws: Aws) -> Iterator[DeletionHarness]:
    made = DeletionHarness(database_url, aws)
    made.pages[ONE] = f"# {CANARY}\n\nThe {CANARY} plays."
    yield made
    made.close()


def index(world: DeletionHarness, *urls: str, ctx: CallerContext = CALLER) -> list[str]:
    ids = [world.submit(url, ctx) for url in urls]
    world.run()
    assert {world.status(each, ctx) for each in ids} == {"done"}
    return ids


@pytest.mark.shows("P071", "R203", "R266", "X11")
def test_a_document_is_deleted_by_a_job_and_its_neighbour_stays(world: DeletionHarness) -> None:
    index(world, ONE, OTHER)
    assert world.found(CANARY, KEY) == [ONE]
    job_id = world.delete(url=ONE).job_id
    assert world.job(job_id).job_type == "delete"
    world.run()
    assert (world.status(job_id), world.found(CANARY, KEY), world.found("words", KEY)) == (
        "embedding",
        [],
        [OTHER],
    )
    assert world.report_deletions() == 1
    job = world.job(job_id)
    assert (job.status, job.user_message) == ("done", "Deleted — the report is ready")
    report = world.report(job_id)
    assert (report.documents, report.document_ids) == (1, [document_id(KEY, ONE)])
    before = {kind: counts.before for kind, counts in report.removed.items() if counts.before}
    assert before.pop("postings") > 0
    assert before == {
        **dict.fromkeys(("chunks", "memberships", "vectors", "catalogue", "jobs"), 1),
        **{"outbox": 3, "inbox": 3},
    }
    assert {counts.after for counts in report.removed.values()} == {0}
    events = "SELECT event FROM audit_events WHERE fields->>'job_type' = 'delete' ORDER BY seq"
    assert world.rows(events) == [("job_submitted",), ("job_completed",)]
    assert {kind: (each.before, each.after) for kind, each in report.referred.items()} == {"raw/": (1, 0)}


@pytest.mark.shows("P071")
def test_no_table_has_a_word_or_the_url_of_what_was_deleted(world: DeletionHarness) -> None:
    index(world, ONE, OTHER)
    world.delete(url=ONE)
    world.run()
    world.report_deletions()
    tables = world.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in tables:
        for word in (CANARY, ONE):
            found = world.rows(f"SELECT * FROM {table} AS t WHERE position('{word}' in t::text) > 0")
            assert not found, (table, word)


@pytest.mark.shows("P071")
def test_nothing_comes_back_when_every_old_message_result_retry_and_replay_is_delivered(
    world: DeletionHarness,
) -> None:
    (old,) = index(world, ONE)
    failed = world.submit(ONE)
    in_flight = world.submit(OTHER)
    scrapes = list(world.scrape.bodies)
    results = [world.scraped(body) for body in scrapes]
    world.cancel(failed)
    messages = [row[0] for row in world.rows("SELECT payload FROM outbox WHERE stage = 'embedding'")]
    for url in (ONE, OTHER):
        world.delete(url=url)
    assert world.job(in_flight).error is not None
    assert world.job(in_flight).error.code == "canceled"  # type: ignore[union-attr]
    world.run()
    world.report_deletions()

    def check() -> None:
        assert world.rows("SELECT FROM documents WHERE published IS NOT NULL") == []
        assert world.rows("SELECT FROM chunks") == world.rows("SELECT FROM postings") == []

    world.deliver(*results)
    world.deliver(*world.embedded(messages))
    for body in scrapes:
        world.scrape.bodies.append(body)
    world.run()
    check()
    for job_id in (failed, in_flight):
        with pytest.raises(CallerError, match="was deleted") as refused:
            world.retry_jobs.one(CALLER, job_id)
        assert refused.value.code == "invalid_transition"
    with pytest.raises(CallerError, match="deleted"):
        world.replay(old)
    check()


@pytest.mark.shows("P071")
def test_what_is_created_again_stays_whatever_of_before_arrives(world: DeletionHarness) -> None:
    index(world, ONE)
    messages = [row[0] for row in world.rows("SELECT payload FROM outbox WHERE stage = 'embedding'")]
    deletion = world.delete(url=ONE).job_id
    late = list(world.embed.bodies)
    world.embed.bodies.clear()
    (again,) = index(world, ONE)
    # The deletion's own message arrives after the new version was published.
    world.deliver(*world.embedded(late))
    world.deliver(*world.embedded(messages))
    world.report_deletions()
    assert world.found(CANARY, KEY) == [ONE]
    assert (world.job(again).url, world.status(deletion)) == (ONE, "done")
    assert world.rows("SELECT job_id FROM documents") == [(again,)]


def test_a_part_that_is_delivered_twice_counts_once(world: DeletionHarness) -> None:
    index(world, ONE)
    job_id = world.delete(url=ONE).job_id
    bodies = list(world.embed.bodies)
    world.embed.bodies.clear()
    first, second = world.embedded(bodies), world.embedded(bodies)
    assert [each.output for each in first] == [each.output for each in second]
    world.deliver(*second, *first)
    world.report_deletions()
    assert world.report(job_id).removed["chunks"].before == 1


@pytest.mark.shows("X11")
@pytest.mark.parametrize(("table", "act"), [("inbox", "DELETE"), ("idempotency_keys", "UPDATE")])
def test_what_is_left_is_counted(world: DeletionHarness, table: str, act: str) -> None:
    (old,) = index(world, ONE)
    world.rows(
        "INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer)"
        " VALUES (%s, 'k', 'x', jsonb_build_object('job_id', %s::text)) RETURNING key",
        CALLER.caller_id,
        old,
    )
    for statement in (
        "CREATE FUNCTION pass_by() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        f"CREATE TRIGGER pass_by BEFORE {act} ON {table} FOR EACH ROW EXECUTE FUNCTION pass_by()",
    ):
        world.database.connection().execute(statement.encode())
    job_id = world.delete(url=ONE).job_id
    world.run()
    world.report_deletions()
    left = {kind: counts.after for kind, counts in world.report(job_id).removed.items() if counts.after}
    assert left == {table: 3 if table == "inbox" else 1}


def test_a_deletion_that_waits_for_its_report_is_neither_lost_nor_stuck(world: DeletionHarness) -> None:
    """Also when nothing can be signed for an hour: what a sweeper has a message of, it sends again."""
    index(world, ONE)
    job_id = world.delete(url=ONE).job_id
    sweep = SweepStore(world.database)
    world.embed.bodies.clear()
    hour = "interval '1 hour'"
    ages = (
        f"UPDATE outbox SET sent_at = now() - {hour}, created_at = now() - {hour} WHERE job_id = '{job_id}'"
    )
    for statement in (ages, f"UPDATE jobs SET updated_at = now() - {hour} WHERE id = '{job_id}'"):
        world.database.connection().execute(statement.encode())
    assert sweep.count_unaccounted(sweep.now()) == {"embedding": 1}
    assert [each.job_id for each in sweep.stuck(["embedding"], ["embedding"], 10)] == [job_id]
    (payload,) = world.rows("SELECT payload FROM outbox WHERE job_id = %s", job_id)
    world.deliver(*world.embedded(payload))
    late = (
        f"UPDATE jobs SET updated_at = now() - {hour}, next_retry_at = now() - {hour} WHERE id = '{job_id}'"
    )
    world.database.connection().execute(late.encode())
    assert sweep.count_unaccounted(sweep.now()) == {}
    assert sweep.stuck(["embedding"], ["embedding"], 10) == []
    world.report_deletions()
    assert world.status(job_id) == "done"


def test_of_a_publish_and_a_deletion_at_the_same_time_nothing_of_before_stays(
    world: DeletionHarness, database_url: str
) -> None:
    """Four workers publish with generations that were issued before, some of documents without a row."""
    addresses = [f"https://site.example/{at}" for at in range(4)]
    for turn in range(_TURNS):
        index(world, *addresses[:2])
        key = world.store.read(lambda tx: tx.key_of_corpus(CALLER.caller_id, "docs"))
        tasks = [
            read(EmbedTask, row[0]).model_copy(update={"generation": world.next_generation()})
            for row in world.rows("SELECT payload FROM outbox WHERE stage = 'embedding'")
        ]
        known = [task.model_copy(update={"job_id": None, "erases": None}) for task in tasks if task.chunks]
        new = [
            task.model_copy(update={"target": target(key, url), "generation": world.next_generation()})
            for task, url in zip(known, addresses[2:], strict=False)
        ]
        begin = threading.Barrier(5)
        with ThreadPoolExecutor(4) as pool:
            published = [pool.submit(publish, database_url, begin, task) for task in (*known[:2], *new)]
            begin.wait()
            deleted = world.delete(url=addresses[turn % 2]).job_id
            for each in published:
                each.result()
        world.run()
        (fence,) = world.rows("SELECT generation FROM deletions WHERE job_id = %s", deleted)
        left = world.rows(
            "SELECT FROM documents WHERE url = %s AND published <= %s", addresses[turn % 2], *fence
        )
        assert left == []
        assert not world.rows("SELECT FROM chunks WHERE document NOT IN (SELECT id FROM documents)")
        confirm = world.preview(everything=True).confirm
        world.delete(everything=True, confirm=confirm)
        world.run()
        assert world.rows("SELECT FROM documents") == world.rows("SELECT FROM postings") == []


def target(key: str, url: str) -> Target:
    caller = CALLER.caller_id
    return Target(
        caller_id=caller, corpus_name="docs", corpus_key=key, document_id=document_id(key, url), url=url
    )


def publish(url: str, begin: threading.Barrier, task: EmbedTask) -> None:
    """Publish as an embed worker of its own does."""
    database = Database(url)
    worker = EmbedBatch(
        PgVectorIndex(database),
        HashEmbedder(),
        InMemoryBlobs(),
        InMemoryQueue(),
        InMemoryVectorCache(),
        FrozenClock(),
    )
    begin.wait()
    worker([Delivery(task, 1, 1e9)])
    database.close()


@pytest.mark.shows("S1")
def test_who_may_not_delete_and_what_is_not_there(world: DeletionHarness) -> None:
    index(world, ONE)
    stranger = CallerContext("feedfeedfeedfeed")
    for ctx, corpus, what in (
        (stranger, "docs", {"url": ONE}),
        (stranger, None, {"document_id": document_id(KEY, ONE)}),
        (CALLER, "docs", {"url": OTHER}),
        (CALLER, "other", {"url": ONE}),
        (CALLER, "other", {"document_id": document_id(KEY, ONE)}),
        (CALLER, "docs", {"name": "one"}),
    ):
        with pytest.raises(CallerError) as refused:
            world.delete(ctx, corpus, **what)
        assert (refused.value.code, refused.value.field) == ("not_found", "body.delete")
    world.delete(corpus_name=None, document_id=document_id(KEY, ONE))
    world.run()
    with pytest.raises(CallerError, match="no such document"):
        world.delete(url=ONE)


@pytest.mark.shows("P071")
def test_in_a_shared_corpus_only_what_one_caller_alone_submitted_is_deleted(
    database_url: str, aws: Aws
) -> None:
    world = DeletionHarness(database_url, aws, CorpusIsolation.SHARED)
    other = CallerContext("0ddba110ddba1100")
    index(world, ONE, OTHER)
    index(world, OTHER, ctx=other)
    for ctx in (CALLER, other):
        with pytest.raises(CallerError) as refused:
            world.delete(ctx, url=OTHER)
        assert refused.value.code == "forbidden"
    with pytest.raises(CallerError) as unknown:
        world.delete(other, url=ONE)
    assert unknown.value.code in ("not_found", "forbidden")
    world.delete(url=ONE)
    world.run()
    assert world.rows("SELECT url FROM documents") == [(OTHER,)]
    # An operator deletes what callers share, also what was never published.
    unpublished = world.submit(f"{ONE}/unpublished", other)
    for url in (OTHER, f"{ONE}/unpublished"):
        world.delete(INTERNAL, url=url)
    assert world.status(unpublished, other) == "failed"
    world.run()
    assert world.rows("SELECT FROM documents") == []
    with pytest.raises(CallerError) as absent:
        world.delete(INTERNAL, url=f"{ONE}/unknown")
    assert absent.value.code == "not_found"
    world.close()


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"job_type": "delete"}, "Send delete with"),
        ({"delete": {"url": ONE}}, "Send delete with"),
        ({"job_type": "delete", "delete": {}}, "exactly one of"),
        ({"job_type": "delete", "delete": {"url": ONE, "name": "x"}}, "exactly one of"),
        ({"job_type": "delete", "delete": {"url": ONE}, "url": ONE}, "takes no url"),
        ({"job_type": "delete", "delete": {"url": ONE, "confirm": "x"}}, "needs no confirm"),
        ({"job_type": "delete", "delete": {"filter": {"colour": "red"}}}, "url_prefix"),
    ],
)
def test_what_no_deletion_is(request_: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        SubmitRequest.model_validate(request_)
