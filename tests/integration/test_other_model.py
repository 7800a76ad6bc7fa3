"""A changed model under published documents is reported by answers, health and incidents."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from indexmill.contracts.http_search import SearchRequest, SearchResponse
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import Space
from indexmill.embedding.search import SearchCorpus
from indexmill.orchestrator.queries.limits import CACHED_S, ReadHealth
from indexmill.orchestrator.store.rows import SQL
from indexmill.orchestrator.sweeper.sweep import LOOKED_AT_EVERY_S
from indexmill.platform.postgres.database import Database
from local.stack import conditions
from tests.support.index_builders import CALLER, SPACE, target, vector_of, version
from tests.support.limits import process
from tests.support.sweeper import TICK_S, PostgresSweeperHarness
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.state_table import InMemoryLimits

pytestmark = [pytest.mark.integration, pytest.mark.shows("R170")]

CHANGED = Space("changed", 6)
OTHER = target("https://b.example/")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


def asked(index: PgVectorIndex, space: Space) -> tuple[bool, list[str]]:
    """Search by a vector; return `other_model` of the answer, and the texts."""
    search = SearchCorpus(index, HashEmbedder(space.dimension, space.model), FrozenClock())
    answer = search(CALLER, SearchRequest(query_embedding=vector_of("a text", space)))
    assert SearchResponse.model_validate_json(answer.model_dump_json()) == answer
    return answer.other_model, sorted(hit.text for hit in answer.results)


def test_it_is_reported_in_each_place_until_the_last_document_is_indexed_again(
    database: Database, database_url: str
) -> None:
    index, before = PgVectorIndex(database), PostgresSweeperHarness(database)
    index.publish(
        [version(["a text"]), version(["b text"], to=OTHER), version([], to=target("https://c.example/"))]
    )
    assert before.tick()["other_models"] == 0
    assert asked(index, SPACE) == (False, ["a text", "b text"])

    deployed = PostgresSweeperHarness(database, CHANGED)
    health = ReadHealth(deployed.store, process(InMemoryLimits(), deployed.clock).active, deployed.clock)
    assert not health().other_model
    assert deployed.tick()["other_models"] == 2
    assert asked(index, CHANGED) == (True, [])
    assert (health().other_model, health().status) == (True, "ok")
    assert deployed.rows("SELECT subject, detail FROM incidents WHERE closed_at IS NULL") == [
        ("tiny (4)", {"documents": 2, "corpora": 1})
    ]
    (said,) = conditions.lines({**conditions.of_database(database_url), "breakers": ()})
    assert said.startswith("documents of model tiny (4) since ")

    index.publish([version(["a text"], 2, space=CHANGED)])
    assert asked(index, CHANGED) == (True, ["a text"])
    assert deployed.tick(LOOKED_AT_EVERY_S)["other_models"] == 1
    index.publish([version(["b text"], 2, to=OTHER, space=CHANGED)])
    assert asked(index, CHANGED) == (False, ["a text", "b text"])
    assert deployed.tick(TICK_S)["other_models"] == 1, "it looks again later"
    assert deployed.tick(LOOKED_AT_EVERY_S)["other_models"] == 0
    deployed.clock.tick(CACHED_S)
    assert not health().other_model
    assert list(conditions.lines({**conditions.of_database(database_url), "breakers": ()})) == []


def test_no_document_is_read_while_there_was_one_model_only(database: Database, database_url: str) -> None:
    PgVectorIndex(database).publish([version(["a text"])])
    read = (
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
        "WHERE relname = 'documents'"
    )
    for space, documents in ((SPACE, 0), (CHANGED, 1)):
        with psycopg.connect(database_url) as session:
            found = session.execute(SQL["other_models"], {"model": space.model, "dimension": space.dimension})
            assert len(found.fetchall()) == documents
            assert session.execute(read).fetchone() == (documents,)
