"""`CorpusIsolation=shared`: corpora are all callers', jobs are each caller's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.scope_matrix import ANSWERS, Matrix
from tests.support.stack import RunningStack, index, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.shows("R172")]

CORPUS = "shared"


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningStack]:
    with running_stack("CorpusIsolation=shared") as running:
        yield running


def found(stack: RunningStack, key: str, query: str) -> set[str]:
    with stack.http(key) as caller:
        answer = caller.post("/embedding/search", json={"query": query, "corpus_name": CORPUS})
    assert answer.status_code == 200
    return {each["source_url"] for each in answer.json()["results"]}


def test_what_one_caller_indexes_another_finds(shared: RunningStack) -> None:
    url, direct = f"{shared.site}/handbook.html", "https://a.example/direct"
    with shared.client() as first, shared.second_client() as second:
        mine = index(first, url, CORPUS)
        assert found(shared, shared.other_api_key, "what may a keeper do") == {url}
        theirs = index(second, url, CORPUS)
        assert (theirs.status, theirs.document_id) == ("done", mine.document_id)
        assert theirs.job_id != mine.job_id
        assert [job.job_id for job in first.list(corpus_name=CORPUS).jobs] == [mine.job_id]
        assert [job.job_id for job in second.list(corpus_name=CORPUS).jobs] == [theirs.job_id]
    with shared.http(shared.other_api_key) as other:
        written = other.post(
            "/embedding/embed", json={"texts": ["owls at night"], "url": direct, "corpus_name": CORPUS}
        )
        assert (written.status_code, written.json()["published"]) == (200, True)
        assert other.get(f"/orchestrator/jobs/{mine.job_id}").status_code == 404
    assert direct in found(shared, shared.api_key, "owls at night")


@pytest.fixture(scope="module")
def matrix(shared: RunningStack) -> Matrix:
    return Matrix.of(shared)


@pytest.mark.shows("P080", "S1")
@pytest.mark.parametrize("answer", ANSWERS)
def test_every_route_needs_its_scope_where_corpora_are_shared(matrix: Matrix, answer: str) -> None:
    assert [*matrix.problems(answer, shared=True)] == []
