"""Corpora that a caller shares with another: what the grant opens, what it hides, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_search import SearchRequest
from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.embedding.adapters.pgvector.catalogue import PostgresCatalogue
from indexmill.embedding.adapters.pgvector.index import PostgresGenerations
from indexmill.embedding.browse import BrowseCorpus, DocumentFilter
from indexmill.embedding.corpora import MAX_GRANTS
from indexmill.embedding.targets import target_of
from indexmill.orchestrator.http.api import RecordAlias
from sql.callers import act
from tests.integration.test_renamed_corpora import CALLER, OTHER, URL, Place, refused

pytestmark = pytest.mark.integration


@pytest.fixture
def place(database_url: str) -> Iterator[Place]:
    made = Place(database_url)
    yield made
    made.database.close()


def shared(place: Place, grantee: str = OTHER.caller_id, corpus: str = "docs") -> str:
    """Index a document into a corpus of CALLER, share the corpus, and return its id."""
    place.finish(place.submit(corpus))
    return place.change.share(CALLER, corpus, grantee, "req-1").corpus_id


def readable(place: Place, ctx: CallerContext) -> dict[str, str]:
    return {each.corpus_id: each.access for each in place.read.list(ctx, 50, None).corpora}


@pytest.mark.shows("R172", "R266")
def test_the_grantee_searches_lists_and_reads_the_corpus_and_nothing_else(place: Place) -> None:
    corpus_id = shared(place)
    place.submit("docs", f"{URL}/own", OTHER)
    browse = BrowseCorpus(PostgresCatalogue(place.database))
    (document,) = place.found("docs")
    assert place.found(corpus_id, OTHER) == [document]
    assert place.found("docs", OTHER) == [], "its own corpus of that name is another one"
    assert readable(place, OTHER)[corpus_id] == "read"
    assert browse.one(OTHER, corpus_id, document).url == URL
    assert len(browse.list(OTHER, corpus_id, DocumentFilter(50)).documents) == 1
    assert len(browse.chunks(OTHER, corpus_id, document, 50).chunks) == 1
    theirs = place.read.get(OTHER, corpus_id)
    mine = place.read.get(CALLER, "docs")
    assert theirs == mine.model_copy(update={"access": "read"})
    told = theirs.model_dump_json() + browse.one(OTHER, corpus_id, document).model_dump_json()
    assert CALLER.caller_id not in told
    assert "job" not in told
    third = CallerContext("2" * 16)
    for ask in (place.found, partial(get, place)):
        assert refused(lambda ask=ask: ask(corpus_id, third))[0] == "not_found"


def get(place: Place, corpus: str, ctx: CallerContext) -> object:
    return place.read.get(ctx, corpus)


@pytest.mark.shows("R172")
def test_hidden_metadata_is_for_the_owner_alone(place: Place) -> None:
    corpus_id = shared(place)
    browse = BrowseCorpus(PostgresCatalogue(place.database))
    metadata = {"topic": "owls", "_price": "7"}
    place.rows("UPDATE documents SET metadata = %s RETURNING id", Jsonb(metadata))
    (document,) = place.found("docs")

    def seen(ctx: CallerContext, corpus: str, **more: Any) -> list[dict[str, str] | None]:
        request = SearchRequest(query="alpha", corpus_name=corpus, mode="keyword", **more)
        found = [hit.metadata for hit in place.ask(ctx.caller_id, request).results]
        listed = [each.metadata for each in browse.list(ctx, corpus, DocumentFilter(50)).documents]
        return [*found, *listed, browse.one(ctx, corpus, document).metadata]

    assert seen(CALLER, "docs") == seen(CALLER, corpus_id) == [metadata] * 3
    assert seen(OTHER, corpus_id) == [{"topic": "owls"}] * 3
    assert len(seen(OTHER, corpus_id, filter={"metadata": {"topic": "owls"}})) == 3
    for wanted in ({"metadata": {"_price": "7"}}, {"metadata_dates": {"_price": {"before": "2026-01-01"}}}):
        assert refused(lambda wanted=wanted: seen(OTHER, corpus_id, filter=wanted)) == (
            *("validation_error", "body.filter"),
        )
        assert seen(CALLER, corpus_id, filter=wanted)


@pytest.mark.shows("R172")
def test_a_grant_is_for_reading_only(place: Place) -> None:
    corpus_id = shared(place)
    change, numbers = place.change, PostgresGenerations(place.database)
    direct = (lambda url: url, CorpusIsolation.CALLER, numbers)
    writes: list[Callable[[], object]] = [
        lambda: place.submit(corpus_id, ctx=OTHER),
        lambda: target_of(OTHER.caller_id, corpus_id, URL, *direct),
    ]
    for write in writes:
        code, field = refused(write)
        assert (code, field) == ("corpus_name_invalid", "body.corpus_name")
    for act_on in (
        lambda: change.rename(OTHER, corpus_id, "mine", ""),
        lambda: change.share(OTHER, corpus_id, "3" * 16, ""),
        lambda: change.unshare(OTHER, corpus_id, OTHER.caller_id, ""),
        lambda: change.grants(OTHER, corpus_id),
    ):
        assert refused(act_on) == ("not_found", "path.name")


def test_known_and_unknown_grantees_answer_alike(place: Place) -> None:
    place.submit("docs")
    place.submit("own", ctx=OTHER)
    act(place.url, "link", [OTHER.caller_id, "a" * 16])
    for given in (OTHER.caller_id, "a" * 16, "9" * 16, "user|none@example.com"):
        found = place.change.share(CALLER, "docs", given, "")
        assert given in [each.caller_id for each in found.grants]
        again = place.change.share(CALLER, "docs", given, "")
        assert again == found
    assert [each.caller_id for each in found.grants] == sorted(
        [OTHER.caller_id, "a" * 16, "9" * 16, "user|none@example.com"]
    )
    events = place.rows("SELECT event, caller_id, fields->>'grantee' FROM audit_events ORDER BY seq")
    told = [each for each in events if each[0] == "corpus_shared"]
    assert [grantee for *_, grantee in told] == [OTHER.caller_id, "a" * 16, "9" * 16, "user|none@example.com"]
    for number in range(MAX_GRANTS - 4):
        place.change.share(CALLER, "docs", f"caller-{number}", "")
    assert refused(lambda: place.change.share(CALLER, "docs", "one-more", "")) == (
        *("invalid_transition", "body.caller_id"),
    )


def test_a_grant_ends_at_once_and_with_its_corpus(place: Place) -> None:
    corpus_id = shared(place)
    assert place.found(corpus_id, OTHER)
    place.change.unshare(CALLER, "docs", OTHER.caller_id, "req-2")
    assert place.change.unshare(CALLER, "docs", OTHER.caller_id, "").grants == []
    assert readable(place, OTHER) == {}
    with pytest.raises(CallerError, match="No such corpus"):
        place.found(corpus_id, OTHER)
    ended = place.rows(
        "SELECT caller_id, fields->>'grantee', fields->>'corpus_id', fields->>'request_id'"
        " FROM audit_events WHERE event = 'corpus_unshared'"
    )
    assert ended == [(CALLER.caller_id, OTHER.caller_id, corpus_id, "req-2")]
    place.change.share(CALLER, "docs", OTHER.caller_id, "")
    place.rows("DELETE FROM corpora RETURNING id")
    assert place.rows("SELECT * FROM corpus_grants") == place.rows("SELECT * FROM corpus_names") == []


@pytest.mark.shows("S4")
def test_grants_follow_links_of_both_sides(place: Place) -> None:
    corpus_id = shared(place, "key-of-later")
    later = CallerContext("b" * 16)
    place.finish(place.submit("own", ctx=later))
    # By a claim, as the authorizer deduces it; and by an operator.
    RecordAlias(place.store)(CallerContext(later.caller_id, alias="key-of-later"))
    assert readable(place, later)[corpus_id] == "read"
    act(place.url, "link", ["c" * 16, later.caller_id])
    assert readable(place, CallerContext("c" * 16))[corpus_id] == "read"
    assert readable(place, later) == {}
    # A grant to an id that is an alias already is its root's.
    place.change.share(CALLER, "docs", later.caller_id, "")
    place.change.unshare(CALLER, "docs", "key-of-later", "")
    assert place.found(corpus_id, CallerContext("c" * 16))
    act(place.url, "link", ["d" * 16, CALLER.caller_id])
    owner = CallerContext("d" * 16)
    assert place.read.get(owner, "docs").corpus_id == corpus_id
    (grant,) = place.change.grants(owner, "docs").grants
    assert grant.caller_id == later.caller_id
    assert place.found(corpus_id, CallerContext("c" * 16))


@pytest.mark.shows("R172")
def test_in_shared_corpora_internal_callers_share(place: Place) -> None:
    ours = Place(place.url, CorpusIsolation.SHARED)
    ours.submit("ours")
    for act_on in (ours.change.share, ours.change.unshare):
        assert refused(lambda act_on=act_on: act_on(CALLER, "ours", "x", "")) == ("forbidden", None)
    internal = CallerContext("f" * 16, internal=True)
    assert len(ours.change.share(internal, "ours", "x", "").grants) == 1
    ours.database.close()
