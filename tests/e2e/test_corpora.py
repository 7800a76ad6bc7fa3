"""Corpora through the gateway: lists and figures."""

from __future__ import annotations

import httpx
import pytest

from indexmill.client import Client
from indexmill.client.errors import ApiError
from tests.support import openapi
from tests.support.stack import RunningStack, index, indexmill

pytestmark = pytest.mark.e2e

CORPORA = "/embedding/corpora"


@pytest.mark.shows("R266", "R172")
def test_a_caller_sees_its_own_corpora_and_their_figures(
    stack: RunningStack, client: Client, http: httpx.Client
) -> None:
    job = index(client, f"{stack.site}/handbook.html", "figures")
    found = client.corpus("figures")
    assert (found.documents, found.chunks, found.access) == (1, job.chunk_count, "write")
    assert (found.bytes or 0) > 100
    assert found in list(client.corpora())
    listed, one = http.get(CORPORA, params={"limit": "1"}), http.get(f"{CORPORA}/{found.corpus_id}")
    assert openapi.problems(CORPORA, listed) == openapi.problems(f"{CORPORA}/{{name}}", one) == []
    assert one.json() == found.model_dump(mode="json")
    with stack.second_client() as second:
        assert "figures" not in [each.corpus_name for each in second.corpora()]
        for name in ("figures", found.corpus_id):
            with pytest.raises(ApiError) as caught:
                second.corpus(name)
            assert caught.value.code == "not_found"
    for wrong, field in (("limit=0", "query.limit"), ("cursor=x", "query.cursor"), ("page=2", "query.page")):
        answer = http.get(f"{CORPORA}?{wrong}")
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert http.get(f"{CORPORA}/No%20name").json()["error"]["code"] == "corpus_name_invalid"


def test_a_corpus_is_renamed_while_a_job_is_in_flight(
    stack: RunningStack, client: Client, http: httpx.Client
) -> None:
    done = index(client, f"{stack.site}/handbook.html", "before")
    running = client.submit(f"{stack.site}/slow?seconds=2&id=renamed", "before").job_id
    renamed = client.rename_corpus("before", "after")
    assert renamed.corpus_name == "after"
    (job,) = client.wait([running], 40)
    assert (job.status, job.corpus_name) == ("done", "after")
    assert client.corpus("after").documents == 2
    assert {each.job_id for each in client.list(corpus_name="after").jobs} == {done.job_id, running}
    (hit, *_) = client.search("keeper", "after").results
    assert hit.corpus_name == "after"
    for call in (lambda: client.search("keeper", "before"), lambda: client.corpus("before")):
        with pytest.raises(ApiError) as caught:
            call()
        assert caught.value.code == "not_found"
    again = index(client, f"{stack.site}/handbook.html", "before")
    assert again.document_id != done.document_id
    rename = f"{CORPORA}/before/rename"
    taken = http.post(rename, json={"new_name": "after"})
    assert (taken.status_code, taken.json()["error"]["field"]) == (409, "body.new_name")
    assert openapi.problems(f"{CORPORA}/{{name}}/rename", taken) == []


def test_a_shared_corpus_is_searched_by_another_caller(stack: RunningStack, client: Client) -> None:
    index(client, f"{stack.site}/handbook.html", "for-others")
    with stack.second_client() as second, stack.http(stack.other_api_key) as other:
        granted = client.share_corpus("for-others", second.limits().caller_id)
        assert [each.caller_id for each in granted.grants] == [second.limits().caller_id]
        assert client.grants("for-others") == granted
        corpus_id = granted.corpus_id
        assert [each.access for each in second.corpora() if each.corpus_id == corpus_id] == ["read"]
        (hit, *_) = second.search("keeper", corpus_id).results
        assert hit.source_url == f"{stack.site}/handbook.html"
        document = f"{CORPORA}/{corpus_id}/documents/{hit.document_id}"
        assert other.get(document).json()["document_id"] == hit.document_id
        refused = other.post("/orchestrator/jobs", json={"url": stack.site, "corpus_name": corpus_id})
        assert refused.json()["error"]["code"] == "corpus_name_invalid"
        client.unshare_corpus("for-others", second.limits().caller_id)
        assert other.get(document).status_code == 404
        wrong = other.post(f"{CORPORA}/for-others/share", json={"caller_id": "not an id"})
        assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "body.caller_id")


def test_the_command_line_lists_renames_shares_and_verifies(stack: RunningStack, client: Client) -> None:
    index(client, f"{stack.site}/handbook.html", "by-hand")

    def corpora(*arguments: str) -> str:
        done = indexmill("corpora", *arguments, "--state", stack.state)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "by-hand" in corpora("list")
    assert "by-other-hand now" in corpora("rename", "by-hand", "by-other-hand")
    assert "0" * 16 in corpora("share", "by-other-hand", "0" * 16)
    assert "no other caller" in corpora("unshare", "by-other-hand", "0" * 16)
    assert '"grants": []' in corpora("grants", "by-other-hand", "--json")
    assert "by-other-hand" in corpora("show", "by-other-hand")
    assert "1 documents, sound" in corpora("verify", "by-other-hand")
    (report,) = client.verify_corpus("by-other-hand")
    assert (report.sound, report.documents, report.wrong) == (True, 1, [])
    wrong = indexmill("corpora", "show", "no-such-corpus", "--state", stack.state)
    assert wrong.returncode != 0
    assert "No such corpus" in wrong.stderr
