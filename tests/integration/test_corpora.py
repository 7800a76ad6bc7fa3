"""Corpora in Postgres: lists, figures, verification."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_corpora import Corpus
from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.contracts.pages import cursor_of
from indexmill.embedding.adapters.pgvector.corpora import PostgresCorpora
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.corpora import ReadCorpora
from indexmill.embedding.ports import DocumentVersion, Space
from indexmill.embedding.verify import VerifyCorpus
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.platform.postgres.database import Connection, Database
from indexmill.platform.time import SystemClock
from tests.support.index_builders import CALLER, SPACE, target, version

pytestmark = pytest.mark.integration

MINE, OTHER = CallerContext(CALLER), CallerContext("f" * 16)


@dataclass
class Place:
    """A database with an index, and the corpora in it."""

    database: Database
    isolation: CorpusIsolation = CorpusIsolation.CALLER
    index: PgVectorIndex = field(init=False)
    corpora: ReadCorpora = field(init=False)
    verify: VerifyCorpus = field(init=False)

    def __post_init__(self) -> None:
        self.index = PgVectorIndex(self.database)
        rows = PostgresCorpora(self.database)
        self.corpora = ReadCorpora(rows, self.isolation)
        self.verify = VerifyCorpus(rows, rows, SystemClock(), self.isolation)

    def publish(self, texts: Sequence[str], generation: int = 1, **to: str) -> DocumentVersion:
        made = version(texts, generation, to=target(**to))
        self.index.publish([made])
        return made

    def get(self, name: str = "default", ctx: CallerContext = MINE) -> Corpus:
        return self.corpora.get(ctx, name)

    def figures(self, name: str = "default") -> tuple[int | None, int, int | None]:
        found = self.get(name)
        return found.documents, found.chunks, found.bytes

    @property
    def rows(self) -> Connection:
        return self.database.connection()


@pytest.fixture
def place(database_url: str) -> Iterator[Place]:
    database = Database(database_url)
    yield Place(database)
    database.close()


@pytest.mark.shows("R266")
def test_figures_follow_each_publish(place: Place) -> None:
    place.publish(["alpha", "bêta"], url="https://a.example/1")
    assert place.figures() == (1, 2, 10)
    first = place.get()
    assert [(each.model, each.dimension) for each in first.models] == [(SPACE.model, SPACE.dimension)]
    assert (first.access, first.corpus_name) == ("write", "default")
    place.publish(["gamma"], url="https://a.example/2")
    assert place.figures() == (2, 3, 15)
    place.publish(["alpha"], 2, url="https://a.example/1")
    assert place.figures() == (2, 2, 10)
    place.publish([], 3, url="https://a.example/1")
    assert place.figures() == (1, 1, 5)
    place.publish(["alpha"], 4, url="https://a.example/1")
    place.index.publish([version(["alpha"], 5, to=target("https://a.example/1"), space=Space("wide", 6))])
    assert place.figures() == (2, 2, 10)
    last = place.get()
    assert [each.model for each in last.models] == ["tiny", "wide"]
    assert first.indexed_at is not None
    assert last.indexed_at is not None
    assert first.created_at <= first.indexed_at < last.indexed_at
    assert place.get(first.corpus_id) == last


@pytest.mark.shows("R266", "R172")
def test_a_caller_lists_its_own_corpora_by_name_a_page_at_a_time(place: Place) -> None:
    names = [f"corpus-{number:02}" for number in range(7)]
    for name in [*reversed(names)]:
        place.publish([name], corpus=name)
    place.publish(["theirs"], corpus="corpus-03", caller=OTHER.caller_id)
    found, cursor = [], None
    while True:
        page = place.corpora.list(MINE, 3, cursor)
        found += [each.corpus_name for each in page.corpora]
        assert page.count == len(page.corpora) <= 3
        if (cursor := page.next_cursor) is None:
            break
    assert found == names
    theirs = place.corpora.list(OTHER, 50, None).corpora
    assert [each.corpus_name for each in theirs] == ["corpus-03"]
    for unknown in ("corpus-99", theirs[0].corpus_id, "corpus_" + "0" * 32):
        with pytest.raises(CallerError, match="No such corpus"):
            place.get(unknown)
    known = theirs[0].corpus_id
    forged = [cursor_of([name, known]) for name in ("a\0", "\ud800", "a\n")]
    for wrong in ("YWJj", "WyJhIiwgImIiXQ==", "not base64", "WzEsIDJd", *forged):
        with pytest.raises(CallerError) as caught:
            place.corpora.list(MINE, 3, wrong)
        assert (caught.value.code, caught.value.field) == ("validation_error", "query.cursor")


@pytest.mark.shows("R172")
def test_shared_corpora_are_in_the_list_of_every_caller(place: Place) -> None:
    shared = Place(place.database, CorpusIsolation.SHARED)
    to = target(corpus="ours")
    key = CorpusIsolation.SHARED.key(CALLER, "ours")
    shared.index.publish([version(["x"], to=to.model_copy(update={"corpus_key": key}))])
    place.publish(["own"], corpus="mine")
    for ctx in (MINE, OTHER):
        assert [each.corpus_name for each in shared.corpora.list(ctx, 50, None).corpora] == ["ours"]
    assert [each.corpus_name for each in place.corpora.list(MINE, 50, None).corpora] == ["mine"]


def test_what_the_release_before_wrote_is_counted_once_while_others_publish(
    place: Place, database_url: str
) -> None:
    for number in range(30):
        place.publish(["old words", str(number)], url=f"https://a.example/{number}")
    place.publish(["small"], corpus="small")
    whole = place.figures()
    place.rows.execute("UPDATE corpus_totals SET documents = 0, bytes = 0, indexed_at = NULL")
    place.rows.execute("UPDATE corpus_names SET documents_before = NULL, bytes_before = NULL")
    store = SweepStore(place.database)
    assert store.count_old_corpora(10, 1000) == 0, "functions of the release before may still run"
    place.rows.execute("UPDATE corpus_names SET since = now() - interval '61 minutes'")
    assert place.figures() == (None, 61 - 1, None)
    assert place.get().indexed_at is None
    stop = threading.Event()

    def replace_documents() -> None:
        database = Database(database_url)
        other, generation = Place(database), 1
        while not stop.is_set() and generation < 50:
            generation += 1
            for number in range(generation % 3, 30, 3):
                texts = ["new", "words", "in", "it"][: generation % 4]
                other.publish(texts, generation, url=f"https://a.example/{number}")
        for number in range(30):
            other.publish(["old words", str(number)], 1_000, url=f"https://a.example/{number}")
        database.close()

    writer = threading.Thread(target=replace_documents)
    writer.start()
    assert store.count_old_corpora(10, 1) == 1, "what would take too long has to wait"
    assert place.figures("small") == (1, 1, 5)
    while store.count_old_corpora(10, 1000):
        pass
    stop.set()
    writer.join(30)
    assert place.figures() == whole


@pytest.mark.shows("R120")
def test_a_sound_corpus_is_verified_in_as_many_requests_as_it_takes(place: Place) -> None:
    for number in range(12):
        place.publish(["old words", str(number)], url=f"https://a.example/{number}")
    place.publish(["other"], corpus="other")
    place.publish(["old words"], 2, url="https://a.example/1")
    place.publish([], 2, url="https://a.example/2")
    whole = place.verify(MINE, "default", None)
    assert (whole.sound, whole.wrong, whole.next_cursor) == (True, [], None)
    assert whole.documents == 11
    compared = {each.name: (each.stored, each.found) for each in whole.figures or ()}
    assert set(compared) == {"documents", "chunks", "words", "bytes", "postings"}
    assert all(stored == found > 0 for stored, found in compared.values())
    assert compared["documents"][0] == 11
    # Without time for more, each request does one statement's worth.
    short, cursor, answers = replace(place.verify, page=5, limit_s=0.0), None, []
    while True:
        answers.append(short(MINE, "default", cursor))
        if (cursor := answers[-1].next_cursor) is None:
            break
    assert [each.sound for each in answers] == [None, None, True]
    assert answers[-1] == whole
    sums = [0] * 5
    forged = [
        [math.inf, 0, sums, "x"],
        [0, math.inf, sums, "x"],
        [0, -1, sums, "x"],
        [0.5, 0, sums, "x"],
        [0, 0, "00000", "x"],
        [0, 0, [*sums[1:], math.inf], "x"],
        [0, 0, sums, "\0"],
        [0, 0, sums, 1],
        [2**62, 0, sums, "x"],
    ]
    for wrong in ("eA==", "WzEsIDJd", "WzEsIDAsIFsxXSwgIngiXQ==", *map(cursor_of, forged)):
        with pytest.raises(CallerError) as caught:
            place.verify(MINE, "default", wrong)
        assert (caught.value.code, caught.value.field) == ("validation_error", "body.cursor")
    # Whatever a cursor says was counted: the answer takes no longer for it.
    huge = place.verify(MINE, "default", cursor_of([0, 0, [2**62 - 1] * 5, "x"]))
    assert (huge.figures, huge.next_cursor) == (None, None)
    with pytest.raises(CallerError, match="No such corpus"):
        place.verify(OTHER, place.get().corpus_id, None)


@pytest.mark.shows("R120")
@pytest.mark.parametrize(
    ("damage", "figures"),
    [
        ("DELETE FROM vectors WHERE chunk = (SELECT min(id) FROM chunks)", set()),
        (
            "DELETE FROM chunks WHERE id = (SELECT min(id) FROM chunks)",
            {"chunks", "words", "bytes", "postings"},
        ),
        ("DELETE FROM memberships WHERE ordinal = 1", {"chunks", "words", "bytes", "postings"}),
        ("UPDATE memberships SET ordinal = 7 WHERE ordinal = 1", set()),
        ("UPDATE documents SET chunk_count = 3", set()),
        ("INSERT INTO memberships SELECT document, 99, chunk, 0, 0, 0 FROM memberships LIMIT 1", {"words"}),
    ],
)
def test_damage_is_found_at_its_document(place: Place, damage: str, figures: set[str]) -> None:
    made = place.publish(["alpha", "beta gamma"])
    place.rows.execute(damage.encode())
    found = place.verify(MINE, "default", None)
    assert [each.document_id for each in found.wrong] == [made.target.document_id]
    assert (found.sound, found.wrong_documents) == (False, 1)
    unequal = {each.name for each in found.figures or () if each.stored != each.found}
    assert unequal >= figures


@pytest.mark.shows("R120")
def test_figures_that_are_off_are_counted_again(place: Place) -> None:
    place.publish(["alpha", "beta gamma"])
    place.rows.execute("UPDATE corpus_totals SET documents = documents + 3, bytes = 1")
    found = place.verify(MINE, "default", None)
    assert (found.sound, found.wrong) == (False, [])
    assert {each.name for each in found.figures or () if each.stored != each.found} == {"documents", "bytes"}
    assert place.figures() == (None, 2, None)
    place.rows.execute("UPDATE corpus_names SET since = now() - interval '1 day'")
    assert SweepStore(place.database).count_old_corpora(10, 1000) == 1
    assert place.figures() == (1, 2, 15)
    assert place.verify(MINE, "default", None).sound


def test_a_publish_meanwhile_is_no_damage(place: Place) -> None:
    place.publish(["alpha"])
    short = replace(place.verify, page=1, limit_s=0.0)
    cursor = short(MINE, "default", None).next_cursor
    place.publish(["beta"], url="https://a.example/2")
    place.publish(["gamma", "delta"], 2)
    found = place.verify(MINE, "default", cursor)
    assert (found.sound, found.figures, found.wrong, found.next_cursor) == (None, None, [], None)
