"""Corpora that are renamed: whose jobs and documents stay where they are, and what becomes of the name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest

from indexmill.contracts.errors import CallerError, IndexmillError
from indexmill.contracts.http_search import SearchRequest
from indexmill.contracts.identity import CallerContext, CorpusIsolation, corpus_key, document_id
from indexmill.contracts.job import SubmitRequest
from indexmill.embedding.adapters.pgvector.corpora import PostgresCorpora
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex, PostgresGenerations
from indexmill.embedding.corpora import ChangeCorpora, ReadCorpora
from indexmill.embedding.search import SearchCorpus
from indexmill.embedding.targets import target_of
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.postgres.database import Database
from sql.callers import act
from tests.support.index_builders import SPACE, target, version
from tests.support.job_stores import Sent
from tests.support.jobs import applied, chunked, embedded, scraped
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.uploads import objects

pytestmark = pytest.mark.integration

CALLER, OTHER = CallerContext("0" * 16), CallerContext("1" * 16)
URL = "https://example.com/a"


@dataclass
class Place:
    """A database with what submits to corpora, indexes into them, searches and renames them."""

    url: str
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def __post_init__(self) -> None:
        self.database = Database(self.url)
        self.store, self.index = JobStore(self.database), PgVectorIndex(self.database)
        self.submit_jobs = SubmitJobs(self.store, cast("Any", Sent()), *objects(), isolation=self.isolation)
        rows = PostgresCorpora(self.database)
        self.read, self.change = ReadCorpora(rows, self.isolation), ChangeCorpora(rows, self.isolation)
        self.ask = SearchCorpus(
            self.index, HashEmbedder(SPACE.dimension, SPACE.model), FrozenClock(), self.isolation
        )

    def submit(self, corpus: str, url: str = URL, ctx: CallerContext = CALLER, **more: Any) -> str:
        return self.submit_jobs(ctx, SubmitRequest(url=url, corpus_name=corpus, **more), "r").job_id

    def finish(self, job_id: str, text: str = "alpha") -> None:
        """Take the job through its stages, and publish the document that its messages name."""
        applied(self.store, scraped(job_id), chunked(job_id))
        ((caller, name, key, document, url, generation),) = self.rows(
            "SELECT caller_id, corpus_name, corpus_key, document_id, canonical_url, generation FROM jobs"
            " WHERE id = %s",
            job_id,
        )
        to = target(url).model_copy(
            update={
                **{"caller_id": caller, "corpus_name": name, "corpus_key": key, "document_id": document},
            }
        )
        self.index.publish([version([text], generation, to=to)])
        applied(self.store, embedded(job_id))

    def rename(self, old: str, new: str, ctx: CallerContext = CALLER) -> str:
        return self.change.rename(ctx, old, new, "req-1").corpus_id

    def found(self, corpus: str, ctx: CallerContext = CALLER) -> list[str]:
        request = SearchRequest(query="alpha", corpus_name=corpus, mode="keyword")
        return [hit.document_id for hit in self.ask(ctx.caller_id, request).results]

    def listed(self, corpus: str) -> dict[str, str | None]:
        wanted = JobFilter(CALLER.caller_id, corpus_name=corpus)
        return {job.job_id: job.corpus_name for job in self.store.read(lambda tx: tx.find_jobs(wanted))}

    def key(self, job_id: str) -> str:
        return str(self.rows("SELECT corpus_key FROM jobs WHERE id = %s", job_id)[0][0])

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.connection().execute(statement.encode(), values).fetchall()


@pytest.fixture
def place(database_url: str) -> Iterator[Place]:
    made = Place(database_url)
    yield made
    made.database.close()


def refused(call: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(CallerError) as caught:
        call()
    return caught.value.code, caught.value.field


def test_a_renamed_corpus_keeps_its_jobs_and_documents_and_leaves_its_name(place: Place) -> None:
    done, running = place.submit("drafts"), place.submit("drafts", f"{URL}/b")
    place.finish(done)
    key, ids = place.key(done), place.found("drafts")
    corpus_id = place.rename("drafts", "handbook")
    assert place.found("handbook") == place.found(corpus_id) == ids == [document_id(key, URL)]
    for gone in (lambda: place.found("drafts"), lambda: place.read.get(CALLER, "drafts")):
        assert refused(gone)[0] == "not_found"
    place.finish(running)
    assert place.key(running) == key
    assert len(place.found("handbook")) == 2
    assert place.listed("handbook") == {done: "handbook", running: "handbook"}
    assert place.listed("drafts") == {}

    # A later corpus of the old name is another one, also for a process that knew the first.
    second = place.submit("drafts")
    place.finish(second, "alpha beta")
    assert place.key(second) not in (key, corpus_key(CALLER.caller_id, "handbook"))
    assert place.found("drafts") == [document_id(place.key(second), URL)]
    assert place.found("handbook")[0] in (ids[0], document_id(key, f"{URL}/b"))
    other = Place(place.url)
    assert other.submit("drafts", f"{URL}/c") in place.listed("drafts")
    other.database.close()
    assert place.key(place.submit("handbook", f"{URL}/d")) == key
    names = place.rows("SELECT n.name, c.name FROM corpus_names AS n JOIN corpora AS c ON c.id = n.corpus")
    assert sorted(names) == [("drafts", "drafts"), ("handbook", "handbook")]


def test_a_name_comes_back_and_each_corpus_keeps_its_key(place: Place) -> None:
    keys = []
    for number in range(4):
        keys.append(place.key(place.submit("temp")))
        place.rename("temp", f"old-{number}")
    assert len(set(keys)) == 4
    assert [place.key(place.submit(f"old-{number}", f"{URL}/x")) for number in range(4)] == keys
    place.rename("old-2", "temp")
    assert place.key(place.submit("temp", f"{URL}/y")) == keys[2]


def test_what_cannot_be_renamed_stays(place: Place) -> None:
    place.submit("one")
    place.submit("two")
    place.submit("theirs", ctx=OTHER)
    first = place.read.get(CALLER, "one").corpus_id
    assert place.rename("one", "one") == first, "nothing to do"
    assert refused(lambda: place.rename("one", "two")) == ("invalid_transition", "body.new_name")
    assert refused(lambda: place.rename("one", "No")) == ("corpus_name_invalid", "body.new_name")
    assert refused(lambda: place.rename("No", "x")) == ("corpus_name_invalid", "path.name")
    theirs = place.read.get(OTHER, "theirs").corpus_id
    for unknown in ("three", "theirs", theirs, "corpus_" + "0" * 32):
        assert refused(lambda name=unknown: place.rename(name, "x")) == ("not_found", "path.name")
    assert place.rename(first, "uno") == first
    events = place.rows("SELECT caller_id, fields FROM audit_events WHERE event = 'corpus_renamed'")
    fields = {"corpus_id": first, "request_id": "req-1", "corpus_name": "one", "new_name": "uno"}
    assert events == [(CALLER.caller_id, fields)]


def test_a_direct_write_goes_where_the_name_leads(place: Place) -> None:
    key = place.key(place.submit("drafts"))
    place.rename("drafts", "handbook")
    numbers = PostgresGenerations(place.database)

    def written(name: str) -> str:
        args = (CALLER.caller_id, name, URL, lambda url: url, CorpusIsolation.CALLER, numbers)
        return target_of(*args)[0].corpus_key

    assert written("handbook") == key
    new = written("drafts")
    assert new != key
    # It is there before its message is in the queue: another corpus cannot take the name meanwhile.
    assert refused(lambda: place.rename("handbook", "drafts"))[0] == "invalid_transition"
    assert place.key(place.submit("drafts")) == new == written("drafts")


@pytest.mark.shows("R172")
def test_shared_corpora_are_renamed_by_internal_callers_only(place: Place) -> None:
    shared = Place(place.url, CorpusIsolation.SHARED)
    internal = CallerContext("f" * 16, internal=True)
    key = shared.key(shared.submit("ours"))
    for ctx in (CALLER, CallerContext("2" * 16, caller_type="service", scopes=("ops",))):
        assert refused(lambda ctx=ctx: shared.rename("ours", "all", ctx)) == ("forbidden", None)
    shared.rename("ours", "all", internal)
    assert shared.key(shared.submit("all", f"{URL}/b", OTHER)) == key
    again = shared.key(shared.submit("ours", ctx=OTHER))
    assert again != key
    assert shared.rows("SELECT owner, name FROM corpus_names ORDER BY name") == [("", "all"), ("", "ours")]
    assert again == shared.key(shared.submit("ours", f"{URL}/c"))
    shared.database.close()


@pytest.mark.shows("F73")
def test_two_creations_of_one_name_at_once_are_one_corpus(place: Place) -> None:
    place.submit("busy")
    place.rename("busy", "first")
    start = threading.Barrier(4)

    def create(number: int) -> str:
        own = Place(place.url)
        start.wait(10)
        try:
            if number % 2:
                return own.key(own.submit("busy", f"{URL}/{number}"))
            numbers = PostgresGenerations(own.database)
            return numbers.place(CALLER.caller_id, CALLER.caller_id, "busy")[0]
        finally:
            own.database.close()

    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(create, range(4)))
    assert len(keys) == 1
    assert place.rows("SELECT count(*) FROM corpora") == [(2,)]


def swapped(place: Place, corpus_id: str, number: int) -> str:
    """Give the corpus the other of two names, as far as no submit makes a corpus of it; return its name."""
    name = place.read.get(CALLER, corpus_id).corpus_name
    other = "blue" if name == "red" else "red"
    with suppress(CallerError):
        place.rename(other, f"aside-{number}")
    with suppress(CallerError):
        place.rename(name, other)
    return place.read.get(CALLER, corpus_id).corpus_name


@pytest.mark.shows("F73", "S4")
def test_under_load_each_job_is_in_the_corpus_that_its_name_meant(place: Place) -> None:
    """Submits, searches and a link take place while corpora exchange their names."""
    alias = CallerContext("a" * 16)
    first = place.submit("red", f"{URL}/red")
    place.finish(first)
    corpus_id = place.read.get(CALLER, "red").corpus_id
    place.finish(place.submit("alone", ctx=alias))
    stop, failures, submitted = threading.Event(), list[str](), threading.Semaphore(0)

    def repeat(work: Callable[[Place, int], object]) -> None:
        own, number = Place(place.url), 0
        while not stop.is_set():
            number += 1
            try:
                work(own, number)
            except IndexmillError as error:
                failures.append(f"{error.code}: {error}")
        own.database.close()

    def submit(own: Place, number: int) -> None:
        own.submit(("red", "blue")[number % 2], f"{URL}/{threading.get_ident()}/{number}")
        submitted.release()

    def search(own: Place, _: int) -> None:
        if not own.found(corpus_id):
            failures.append("its document is gone")

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(repeat, work) for work in (submit, submit, search)]
        names = []
        for number in range(8):
            names.append(swapped(place, corpus_id, number))
            assert all(submitted.acquire(timeout=20) for _ in range(3)), "each rename is seen by submits"
            if number == 4:
                act(place.url, "link", [CALLER.caller_id, alias.caller_id])
        stop.set()
        for each in running:
            each.result(30)
    assert failures == []
    assert set(names) == {"red", "blue"}
    assert place.found("alone") == place.found(place.read.get(CALLER, "alone").corpus_id) != []
    lost = place.rows(
        "SELECT j.id FROM jobs AS j LEFT JOIN corpora AS c ON c.corpus_key = j.corpus_key"
        " WHERE c.id IS NULL OR j.document_id <> encode(sha256(convert_to(j.corpus_key, 'UTF8')"
        " || '\\x00'::bytea || convert_to(j.canonical_url, 'UTF8')), 'hex')"
    )
    assert lost == []
    assert place.key(first) == corpus_key(CALLER.caller_id, "red")
    (counts,) = place.rows(
        "SELECT (SELECT count(*) FROM corpora), (SELECT count(*) FROM corpus_names),"
        " (SELECT count(DISTINCT corpus_key) FROM corpora)"
    )
    assert len(set(counts)) == 1
