"""Callers in Postgres: what follows an alias, blocks, maintenance; and their copy in the state table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from indexmill.access.identify import Roots
from indexmill.contracts.errors import CallerError, TransientError
from indexmill.contracts.identity import CallerContext, CorpusIsolation, corpus_key, document_id
from indexmill.contracts.job import SubmitRequest
from indexmill.embedding.adapters.pgvector.index import PostgresJobTargets
from indexmill.orchestrator.http.api import RecordAlias
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.orchestrator.submission.submit import CallerMoved, SubmitJobs
from indexmill.orchestrator.sweeper.sweep import Mirror, MirrorCallers, window_keys
from indexmill.platform.aws.state_table import StoreUnavailable
from indexmill.platform.postgres.database import Database
from local.backends.ministack import MiniStack
from sql.callers import ActError, act
from sql.migrate import after_restore
from tests.support.job_stores import Sent, canceled
from tests.support.jobs import applied, chunked, embedded, scraped
from tests.support.state_table import dynamodb, new_table
from tests.twins.clock import FrozenClock
from tests.twins.uploads import objects

pytestmark = pytest.mark.integration

OLD, NEW = "0" * 16, "1" * 16
URL = "https://example.com/a"


@dataclass
class Place:
    """A database with the Orchestrator's use cases."""

    url: str
    database: Database

    def __post_init__(self) -> None:
        self.store = JobStore(self.database)
        self.submit_jobs = SubmitJobs(self.store, cast("Any", Sent()), *objects())

    def submit(
        self, caller: str | CallerContext, corpus: str = "docs", key: str | None = None, **more: Any
    ) -> str:
        ctx = CallerContext(caller) if isinstance(caller, str) else caller
        request = SubmitRequest(url=more.pop("url", URL), corpus_name=corpus, **more)
        return self.submit_jobs(ctx, request, "r", key).job_id

    def done(self, caller: str, corpus: str = "docs", **more: Any) -> str:
        job_id = self.submit(caller, corpus, **more)
        applied(self.store, scraped(job_id), chunked(job_id), embedded(job_id))
        return job_id

    def jobs_of(self, caller: str) -> set[str]:
        found = self.store.read(lambda tx: tx.find_jobs(JobFilter(caller)))
        return {job.job_id for job in found}

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.connection().execute(statement.encode(), values).fetchall()

    def document(self, caller: str, corpus: str, job_id: str) -> None:
        """Publish an empty version of the job's document, as Embedding does."""
        key = corpus_key(caller, corpus)
        self.rows(
            "INSERT INTO documents (document_id, corpus_id, url, published, job_id)"
            " SELECT %s, id, %s, 1, %s FROM corpora WHERE corpus_key = %s"
            " ON CONFLICT (document_id) DO UPDATE SET published = 1 RETURNING id",
            *(document_id(key, URL), URL, job_id, key),
        )


@pytest.fixture
def place(database_url: str) -> Iterator[Place]:
    database = Database(database_url)
    yield Place(database_url, database)
    database.close()


@pytest.mark.shows("S4", "R087")
def test_what_a_caller_has_follows_it_to_its_new_key(place: Place) -> None:
    first = place.done(OLD, "docs", key="k-1")
    second = place.done(NEW, "news", key="k-2")
    place.document(NEW, "news", second)
    place.rows(
        "INSERT INTO caller_chunks VALUES (%s, '2026-01-01', 5), (%s, '2026-01-01', 7) RETURNING 1", OLD, NEW
    )

    (done,) = act(place.url, "link", [OLD, NEW])

    assert done["linked"] == {"root": OLD, "jobs": 1, "corpora": 1}
    assert place.jobs_of(OLD) == {first, second}
    assert place.jobs_of(NEW) == set()
    key = corpus_key(NEW, "news")
    assert place.rows("SELECT corpus_key FROM corpora WHERE name = 'news'") == [(key,)], (
        "nothing is renumbered"
    )
    ids = {(document_id(key, URL),)}
    assert set(place.rows("SELECT document_id FROM documents WHERE job_id = %s", second)) == ids
    assert set(place.rows("SELECT document_id FROM jobs WHERE id = %s", second)) == ids
    assert place.rows("SELECT caller_id, chunks FROM caller_chunks") == [(OLD, 12)]
    assert place.submit(OLD, "news", key="k-2") == second, "an idempotent repeat has its first answer"
    # Its next job there is one of the document that it had.
    assert place.submit(OLD, "news") in place.jobs_of(OLD)
    assert set(place.rows("SELECT document_id FROM jobs WHERE corpus_name = 'news'")) == ids


@pytest.mark.shows("S4")
def test_aliases_have_one_root_and_a_second_link_moves_what_came_meanwhile(place: Place) -> None:
    place.done(OLD)
    act(place.url, "link", [NEW, "2" * 16])
    act(place.url, "link", [OLD, NEW])
    roots = {row["caller_id"]: row["root"] for row in act(place.url, "list")}
    assert roots == {OLD: OLD, NEW: OLD, "2" * 16: OLD}
    late = place.rows("UPDATE jobs SET caller_id = %s RETURNING id", NEW)
    assert [act(place.url, "link", [OLD, NEW])[0]["linked"]["jobs"]] == [len(late)]
    for wrong in ([OLD, OLD], [NEW, OLD], ["3" * 16, NEW]):
        with pytest.raises(ActError):
            act(place.url, "link", wrong)


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda place: (place.done(OLD, "a"), place.done(NEW, "a")), "have a corpus named a"),
        (lambda place: place.submit(NEW), "have not ended|has jobs that have not ended"),
        (lambda place: act(place.url, "block", [NEW, "spam"]), "is blocked"),
    ],
    ids=["corpora of one name", "jobs in flight", "blocked"],
)
def test_a_link_that_would_lose_something_is_refused_and_changes_nothing(
    place: Place, prepare: Callable[[Place], object], why: str
) -> None:
    prepare(place)
    before = place.rows("SELECT caller_id, id FROM jobs"), act(place.url, "list")
    with pytest.raises(ActError, match=why):
        act(place.url, "link", [OLD, NEW])
    assert (place.rows("SELECT caller_id, id FROM jobs"), act(place.url, "list")) == before


@pytest.mark.shows("S4")
def test_no_job_is_accepted_for_an_alias(place: Place) -> None:
    act(place.url, "link", [OLD, NEW])
    with pytest.raises(CallerMoved) as caught:
        place.submit(NEW)
    assert (caught.value.http_status, caught.value.retry_after, caught.value.root) == (503, 60, OLD)
    assert place.rows("SELECT FROM jobs") == place.rows("SELECT FROM corpora") == []


def test_an_internal_caller_submits_for_another_and_its_aliases(place: Place) -> None:
    act(place.url, "link", [OLD, NEW])
    internal = CallerContext("f" * 16, internal=True)
    jobs = {place.submit(internal, url=f"{URL}/{name}", on_behalf_of=name) for name in (OLD, NEW)}
    assert place.jobs_of(OLD) == jobs
    for ctx in (CallerContext(NEW), CallerContext(NEW, caller_type="service")):
        with pytest.raises(CallerError) as caught:
            place.submit(ctx, on_behalf_of=OLD)
        assert (caught.value.http_status, caught.value.field) == (403, "body.on_behalf_of")


@pytest.mark.shows("S4", "R086")
def test_an_alias_by_claim_is_recorded_once_and_changes_no_known_one(place: Place) -> None:
    place.done(OLD)
    record = RecordAlias(place.store)
    for _ in range(2):
        record(CallerContext(OLD, alias="user_abc"))
    RecordAlias(place.store)(CallerContext(NEW, alias="user_abc"))
    roots = {row["caller_id"]: row["root"] for row in act(place.url, "list")}
    assert roots == {OLD: OLD, "user_abc": OLD}


def test_the_embedding_service_sees_the_target_of_a_job_and_nothing_more(place: Place) -> None:
    job_id = place.submit(OLD)
    found = PostgresJobTargets(place.database).find(job_id)
    assert found is not None
    assert (found.target.caller_id, found.target.corpus_key) == (OLD, corpus_key(OLD, "docs"))
    assert (found.target.url, found.status, found.attempt, found.generation) == (URL, "scraping", 1, None)
    applied(place.store, scraped(job_id), chunked(job_id))
    embedding = PostgresJobTargets(place.database).find(job_id)
    assert embedding is not None
    assert (embedding.status, embedding.generation is None) == ("embedding", False)
    canceled(place.store, job_id, ctx=CallerContext(OLD))
    ((fence,),) = place.rows("SELECT min_generation FROM documents")
    assert fence > (embedding.generation or 0)
    assert PostgresJobTargets(place.database).find("unknown") is None


@dataclass
class Copy:
    """The state table, and the sweeper's step that fills it."""

    client: Any
    table: str
    sweep: MirrorCallers
    roots: Roots

    def item(self, pk: str) -> dict[str, Any] | None:
        found = self.client.get_item(TableName=self.table, Key={"pk": {"S": pk}}, ConsistentRead=True)
        return found.get("Item")  # type: ignore[no-any-return]

    def blocked(self, caller: str) -> list[str | None]:
        items = [self.item(key) or {} for key in window_keys(caller)]
        return [item.get("blocked", {}).get("S") for item in items]

    def clear(self) -> None:
        for item in self.client.scan(TableName=self.table)["Items"]:
            self.client.delete_item(TableName=self.table, Key={"pk": item["pk"]})


@pytest.fixture
def copy(place: Place, ministack: MiniStack) -> Copy:
    client = dynamodb(ministack)
    table = new_table(client)
    mirror = Mirror(table, FrozenClock(), client)
    return Copy(client, table, MirrorCallers(SweepStore(place.database), mirror), Roots(table, client))


def test_one_sweep_restores_what_the_table_lost(place: Place, copy: Copy) -> None:
    place.done(OLD)
    act(place.url, "link", [OLD, NEW])
    act(place.url, "block", [NEW, "spam"])
    act(place.url, "maintenance", ["We move."])
    for _ in range(2):
        assert copy.sweep() == 3
        assert copy.roots.find([OLD, NEW, "unknown"]) == {OLD: OLD, NEW: OLD}
        assert copy.blocked(OLD) == ["spam"] * 12
        assert (copy.item("door#maintenance") or {})["message"] == {"S": "We move."}
        assert copy.sweep() == 0
        copy.clear()
    assert copy.roots.find([OLD, NEW]) == {}


def test_a_block_ends_everywhere_and_leaves_the_counters(place: Place, copy: Copy) -> None:
    door = f"door#embedding#work#{OLD}"
    counted = {"pk": {"S": door}, "n": {"N": "7"}, "expires_at": {"N": "1"}}
    copy.client.put_item(TableName=copy.table, Item=counted)
    act(place.url, "block", [OLD, "spam"])
    copy.sweep()
    item = copy.item(door) or {}
    assert (item["n"], item["blocked"], "expires_at" in item) == ({"N": "7"}, {"S": "spam"}, False)
    assert act(place.url, "unblock", [OLD]) == [{"unblocked": OLD}]
    act(place.url, "maintenance", ["x"])
    act(place.url, "maintenance", [""])
    copy.sweep()
    assert copy.blocked(OLD) == [None] * 12
    assert "expires_at" in (copy.item(door) or {})
    assert "message" not in (copy.item("door#maintenance") or {})
    assert act(place.url, "unblock", [OLD]) == [{"unblocked": None}]


def test_a_sweeper_that_is_late_changes_nothing(place: Place, copy: Copy) -> None:
    act(place.url, "block", [OLD, "spam"])
    (late,) = copy.sweep.store.unmirrored(10)
    act(place.url, "unblock", [OLD])
    copy.sweep()
    copy.sweep.mirror.put(late)
    copy.sweep.store.mark_mirrored([late])
    assert copy.blocked(OLD) == [None] * 12
    act(place.url, "block", [OLD, "again"])
    copy.sweep.store.mark_mirrored([late])
    copy.sweep()
    assert copy.blocked(OLD) == ["again"] * 12


def test_after_a_restore_the_copies_of_later_versions_are_replaced(place: Place, copy: Copy) -> None:
    act(place.url, "block", [OLD, "spam"])
    copy.sweep()
    place.rows(
        "UPDATE callers SET blocked_at = NULL, blocked_reason = NULL, unblocked_at = now(), version = 0"
        " RETURNING 1"
    )
    after_restore(place.url)
    copy.sweep()
    assert copy.blocked(OLD) == [None] * 12


def test_a_table_that_is_unavailable_is_no_answer(copy: Copy) -> None:
    missing = Roots("no-such-table", copy.client)
    with pytest.raises(StoreUnavailable):
        missing.find([OLD])
    with pytest.raises(TransientError):
        Mirror("no-such-table", FrozenClock(), copy.client).exists()


@pytest.mark.shows("R172")
def test_a_link_leaves_a_shared_corpus_where_it_is(place: Place) -> None:
    place.submit_jobs = replace(place.submit_jobs, isolation=CorpusIsolation.SHARED)
    job_id = place.done(NEW)
    before = place.rows("SELECT corpus_key FROM corpora")
    place.rows("SELECT link_callers(%s, %s)", OLD, NEW)
    assert place.jobs_of(OLD) == {job_id}
    assert place.rows("SELECT corpus_key FROM corpora") == before
    assert place.rows("SELECT corpus_key FROM jobs") == before == [(CorpusIsolation.SHARED.key(OLD, "docs"),)]
