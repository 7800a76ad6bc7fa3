"""Every check is quiet over a healthy database, and sees the damage that it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from indexmill.contracts.messages import EmbedTask, read
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.documents import Work
from indexmill.embedding.ports import PublishOutcome
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from local.faults.invariants import dead_letters, index, jobs, secrets, stale
from local.faults.invariants.violation import Accepted, Violation
from tests.support.index_builders import SPACE, vector_of
from tests.support.jobs import embedded, failed, scraped
from tests.support.orchestrator import OrchestratorHarness

pytestmark = pytest.mark.integration

DONE, BROKEN, IN_FLIGHT = "done", "broken", "at-work"
KEY = "the-key-of-somebody"
NOTHING: dict[str, int] = {}


@dataclass
class Harness:
    """A database with a job that is done, one that failed, and one whose chunks are being embedded."""

    rows: psycopg.Connection[tuple[object, ...]]
    ids: dict[str, str]

    @property
    def accepted(self) -> list[Accepted]:
        ends = {DONE: "done", BROKEN: "failed"}
        return [
            Accepted(self.ids[name], f"https://site.example/{name}", "docs", "Some words.", end)
            for name, end in ends.items()
        ]

    def damage(self, statements: str) -> None:
        """Run `statements`, in which {done}, {broken} and {work} are replaced by the jobs' ids."""
        names = {"done": self.ids[DONE], "broken": self.ids[BROKEN], "work": self.ids[IN_FLIGHT]}
        self.rows.execute("ALTER TABLE job_history DISABLE TRIGGER append_only")
        self.rows.execute(statements.format(**names).encode())

    def violations(self, depths: dict[str, int] = NOTHING) -> list[Violation]:
        """Return what all checks say but those that want every job at its end."""
        return [
            *jobs.no_job_lost(self.rows, self.accepted),
            *jobs.no_message_missing(self.rows, {"EmbedQueue": 1} | depths),
            *jobs.histories_are_valid(self.rows),
            *index.done_is_complete(self.rows, lambda key: b""),
            *index.no_duplicates(self.rows),
            *dead_letters.no_poison_left(self.rows, depths),
        ]


@pytest.fixture
def harness(database_url: str) -> Iterator[Harness]:
    database = Database(database_url)
    pipeline = OrchestratorHarness(JobStore(database))
    ids = {name: pipeline.submit(f"https://site.example/{name}") for name in (DONE, BROKEN, IN_FLIGHT)}
    pipeline.deliver(failed(ids[BROKEN]))
    for name in (DONE, IN_FLIGHT):
        # Several chunks: each paragraph is longer than half a chunk.
        text = f"# {name}\n\n" + "\n\n".join(
            each * 60 for each in ("Some words. ", "More words. ", "Some words. ")
        )
        pipeline.deliver(scraped(ids[name], text=text))
    tasks = {task.job_id: task for task in (read(EmbedTask, body) for body in pipeline.embed.bodies)}
    task = tasks[ids[DONE]]
    work = Work(0, task, task.chunks or [])
    vectors = {each: vector_of(each) for each in work.ids}
    assert PgVectorIndex(database).publish([work.version(SPACE, vectors)]) == [PublishOutcome.PUBLISHED]
    pipeline.deliver(embedded(ids[DONE], chunk_count=task.chunk_count))
    with psycopg.connect(database_url, autocommit=True) as rows:
        yield Harness(rows, ids)
    database.close()


def test_a_healthy_database_breaks_no_promise(harness: Harness) -> None:
    assert harness.violations() == []


DAMAGE = {
    "an accepted job is not there": ("I1", "DELETE FROM jobs WHERE id = '{broken}'"),
    "no message of a stage": ("I1", "DELETE FROM outbox WHERE job_id = '{work}' AND stage = 'embedding'"),
    "the message is parked": (
        "I2",
        "UPDATE outbox SET parked_at = now(), sent_at = NULL; "
        "UPDATE jobs SET status = 'scraping' WHERE id = '{work}'",
    ),
    "a status without history": ("I3", "UPDATE jobs SET status = 'chunking' WHERE id = '{work}'"),
    "no history": ("I3", "DELETE FROM job_history WHERE job_id = '{broken}'"),
    "a stage is left out": (
        "I3",
        "DELETE FROM job_history WHERE job_id = '{done}' AND to_status = 'chunking'",
    ),
    "a step after the end": (
        "I3",
        "INSERT INTO job_history (job_id, attempt, from_status, to_status) "
        "VALUES ('{done}', 1, 'done', 'failed')",
    ),
    "an attempt is left out": (
        "I3",
        "INSERT INTO job_history (job_id, attempt, from_status, to_status) "
        "VALUES ('{broken}', 3, 'failed', 'scraping'); "
        "UPDATE jobs SET attempt = 3, status = 'scraping', failed_stage = NULL, error = NULL "
        "WHERE id = '{broken}'",
    ),
    "a new attempt of what is done": (
        "I3",
        "INSERT INTO job_history (job_id, attempt, from_status, to_status) "
        "VALUES ('{done}', 2, 'done', 'scraping'); "
        "UPDATE jobs SET attempt = 2, status = 'scraping' WHERE id = '{done}'",
    ),
    "a step twice": (
        "I3",
        "ALTER TABLE job_history DROP CONSTRAINT job_history_job_id_attempt_to_status_key; "
        "INSERT INTO job_history (job_id, attempt, from_status, to_status) "
        "VALUES ('{done}', 1, 'embedding', 'done')",
    ),
    "a history that was changed": ("I3", "UPDATE job_history SET cause = 'x' WHERE job_id = '{broken}'"),
    "a document that is not published": ("I4", "UPDATE documents SET published = NULL"),
    "a chunk is missing": ("I4", "DELETE FROM memberships WHERE ordinal = 1"),
    "a chunk of an older generation": (
        "I4",
        "INSERT INTO memberships SELECT document, generation - 1, chunk, ordinal, start_at, end_at "
        "FROM memberships WHERE ordinal = 1",
    ),
    "a vector is missing": ("I4", "DELETE FROM vectors WHERE chunk = (SELECT min(chunk) FROM vectors)"),
    "a vector of another length": ("I4", "UPDATE vectors SET embedding = '[1,2]'"),
    "a text that is not the chunk's": ("I4", "UPDATE chunks SET text = text || '!'"),
    "what a failed job published": ("I4", "UPDATE documents SET job_id = '{broken}'"),
    "a count that is wrong": ("I4", "UPDATE jobs SET chunk_count = 7 WHERE id = '{done}'"),
    "chunks that were not asked for": (
        "I4",
        "UPDATE outbox SET payload = replace(payload, 'More words', 'Less words') WHERE job_id = '{done}'",
    ),
    "a chunk of no document": ("I5", "UPDATE memberships SET chunk = -1 WHERE ordinal = 1"),
    "a vector of no chunk": (
        "I5",
        "INSERT INTO vectors SELECT corpus, space, -5, embedding FROM vectors LIMIT 1",
    ),
    "a word of no chunk": (
        "I5",
        "INSERT INTO postings SELECT corpus, term, -5, tf, dl FROM postings LIMIT 1",
    ),
    "a chunk without some of its words": (
        "I5",
        "DELETE FROM postings WHERE (chunk, term) IN (SELECT chunk, term FROM postings LIMIT 1)",
    ),
    "totals that are counted twice": ("I5", "UPDATE corpus_totals SET words = words * 2"),
    "two messages for one stage": (
        "I5",
        "INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload) "
        "SELECT id || '2', job_id, caller_id, attempt, stage, kind, payload FROM outbox "
        "WHERE job_id = '{done}'",
    ),
    "a dead letter of a job at work": (
        "I10",
        "INSERT INTO dead_letters (queue, job_id, body, receive_count, reason, cause) "
        "VALUES ('q', '{work}', '', 1, '', 'poison_message')",
    ),
}


@pytest.mark.parametrize(("invariant", "statements"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_seen(harness: Harness, invariant: str, statements: str) -> None:
    harness.damage(statements)
    assert invariant in {each.invariant for each in harness.violations()}


def test_a_job_whose_message_is_nowhere_is_not_accounted_for(harness: Harness) -> None:
    found = harness.violations({"EmbedQueue": 0})
    assert [(each.invariant, each.subject) for each in found] == [("I2", "embedding")]
    assert harness.violations({"EmbedQueue": 0, "CallbacksQueue": 1}) == []


def test_an_unhandled_dead_letter_is_seen(harness: Harness) -> None:
    found = harness.violations({"ScrapeDlq": 2})
    assert [(each.invariant, each.subject) for each in found] == [("I10", "ScrapeDlq")]


def test_a_job_that_is_not_at_its_end_is_seen(harness: Harness) -> None:
    found = jobs.all_jobs_terminal(harness.rows, harness.accepted)
    assert [each.subject for each in found] == [harness.ids[IN_FLIGHT]]
    wrong = [Accepted(harness.ids[BROKEN], "u", "docs", ends="done")]
    assert harness.ids[BROKEN] in {each.subject for each in jobs.all_jobs_terminal(harness.rows, wrong)}


def test_a_sentence_that_is_not_found_is_seen(harness: Harness) -> None:
    mine = harness.accepted[0].url
    for hits, expected in (([mine], 0), ([], 1), (["https://site.example/other"], 1), ([mine, mine], 1)):
        found = index.done_is_searchable(harness.rows, harness.accepted, lambda text, corpus, hits=hits: hits)
        assert [each.subject for each in found] == [harness.ids[DONE]] * expected


def test_what_a_stale_result_changes_is_seen(harness: Harness) -> None:
    job_id = harness.ids[DONE]
    before = stale.snapshot(harness.rows, job_id)
    assert stale.differences(harness.rows, job_id, before) == []
    harness.damage("UPDATE jobs SET tries = 9 WHERE id = '{done}'; UPDATE documents SET min_generation = 9")
    assert [each.what.rpartition(" ")[2] for each in stale.differences(harness.rows, job_id, before)] == [
        "job",
        "document",
    ]


def test_a_result_that_was_not_looked_at_is_not_counted(harness: Harness) -> None:
    (known,) = harness.rows.execute("SELECT message_id FROM inbox LIMIT 1").fetchone() or ("",)
    assert stale.all_processed(harness.rows, [str(known)])
    assert not stale.all_processed(harness.rows, [str(known), "never-came"])


@pytest.mark.parametrize(
    ("statements", "place"),
    [
        ("UPDATE jobs SET title = 'x the-key-of-somebody' WHERE id = '{done}'", "jobs.title"),
        ("UPDATE outbox SET payload = 'the-key-of-somebody'", "outbox.payload"),
        (
            "UPDATE jobs SET error = '{{\"why\": \"the-key-of-somebody\"}}' WHERE id = '{broken}'",
            "jobs.error",
        ),
    ],
)
def test_a_key_in_a_row_is_seen(harness: Harness, tmp_path: Path, statements: str, place: str) -> None:
    key = secrets.Canary("key", KEY)
    assert secrets.leaks(harness.rows, [key], tmp_path, []) == []
    harness.damage(statements)
    assert [each.what for each in secrets.leaks(harness.rows, [key], tmp_path, [])] == [f"occurs in {place}"]


def test_a_documents_text_may_occur_only_where_documents_are_stored(harness: Harness, tmp_path: Path) -> None:
    text = secrets.Canary("text", "More words.", secrets.DOCUMENT_STORE)
    assert secrets.leaks(harness.rows, [text], tmp_path, []) == []
    harness.damage("UPDATE jobs SET title = 'More words.' WHERE id = '{done}'")
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "Worker.jsonl").write_text('{"message": "More words."}')
    found = secrets.leaks(harness.rows, [text], tmp_path, [("metrics", 'x{text="More words."} 1')])
    assert {each.what for each in found} == {
        "occurs in functions/Worker.jsonl",
        "occurs in jobs.title",
        "occurs in metrics",
    }
