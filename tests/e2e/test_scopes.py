"""Scopes of keys on the whole local cloud: what a list in Membership's claims lets a key do."""

from __future__ import annotations

import pytest

from indexmill.client import ApiError, Client
from tests.support.scope_matrix import ANSWERS, Matrix
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.e2e, pytest.mark.shows("P080")]


@pytest.fixture(scope="module")
def matrix(stack: RunningStack) -> Matrix:
    return Matrix.of(stack)


@pytest.mark.shows("S1")
@pytest.mark.parametrize("answer", ANSWERS)
def test_every_route_needs_its_scope_and_tells_nothing_of_other_callers(matrix: Matrix, answer: str) -> None:
    assert [*matrix.problems(answer)] == []


def test_a_client_learns_what_is_missing_and_what_its_key_may(matrix: Matrix) -> None:
    gateway, keys = matrix.stack.gateway, matrix.keys
    with Client(gateway, keys["its scope", "orchestrator:read"]) as reader:
        assert reader.limits().granted_scopes == ["orchestrator:read"]
        assert reader.get(matrix.own["job"]).job_id == matrix.own["job"]
        with pytest.raises(ApiError) as refused:
            reader.submit(matrix.page)
        assert (refused.value.code, refused.value.status) == ("insufficient_scope", 403)
        assert "orchestrator:write" in refused.value.message
        assert refused.value.hint
    with Client(gateway, keys["no field", "orchestrator:read"]) as free:
        assert free.limits().granted_scopes is None


def test_a_stream_token_reads_its_job_whatever_its_caller_may_beside(matrix: Matrix) -> None:
    key = matrix.keys["its scope", "orchestrator:read"]
    job = f"/orchestrator/jobs/{matrix.own['job']}"
    with matrix.stack.http(key) as reader, matrix.stack.http("") as browser:
        grant = reader.post(f"{job}/stream-token").json()
        assert browser.get(f"{job}/stream", params={"token": grant["token"]}).status_code == 200
        assert browser.get(job, params={"token": grant["token"]}).status_code == 401


def test_a_deletion_needs_its_scope_beside_that_of_the_route(matrix: Matrix) -> None:
    wanted = {"job_type": "delete", "corpus_name": "matrix-own", "delete": {"url": matrix.page + "?none"}}
    refused = [("its scope", "orchestrator:write"), ("every other scope", "embedding:delete")]
    for body in (wanted, {**wanted, "dry_run": True}):
        for kind in refused:
            with matrix.stack.http(matrix.keys[kind]) as http:
                answer = http.post("/orchestrator/jobs", json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (403, "insufficient_scope")
            assert (error["field"], "embedding:delete" in error["message"]) == ("body.job_type", True)
        with matrix.stack.http(matrix.keys["every other scope", "embedding:write"]) as http:
            assert http.post("/orchestrator/jobs", json=body).status_code == 404
