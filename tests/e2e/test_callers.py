"""Callers on the whole local cloud: links, blocks, maintenance, revoked keys, an outage of Membership."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from indexmill.client import Client
from indexmill.contracts.identity import key_hash
from tests.support import openapi
from tests.support.stack import RunningStack, eventually, index, indexmill, running_stack

pytestmark = pytest.mark.e2e

PAGE = "/collections/bookboat.html"
JOBS = "/orchestrator/jobs"


class Keys:
    """The keys that Membership knows."""

    def __init__(self, stack: RunningStack) -> None:
        self._file = Path(stack.state) / "membership-keys.json"

    def add(self, claims: dict[str, Any] | None = None) -> str:
        key = secrets.token_hex(16)
        self.change(key, claims)
        return key

    def change(self, key: str, claims: dict[str, Any] | None) -> None:
        self._write({**self._known(), key: claims})

    def revoke(self, key: str) -> None:
        self._write({name: claims for name, claims in self._known().items() if name != key})

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = json.loads(self._file.read_text())
        return known

    def _write(self, known: dict[str, Any]) -> None:
        # Membership must never read half of it.
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(known))
        new.replace(self._file)


@pytest.fixture
def keys(stack: RunningStack) -> Keys:
    return Keys(stack)


def operate(stack: RunningStack, *arguments: str) -> str:
    done = indexmill(*arguments, "--state", stack.state)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


@pytest.mark.shows("S4", "R087")
def test_jobs_and_corpora_follow_a_caller_to_its_new_key(stack: RunningStack, keys: Keys) -> None:
    old, new = keys.add(), keys.add()
    with Client(stack.gateway, old) as client:
        before = index(client, stack.site + PAGE, "library")
    operate(stack, "callers", "link", key_hash(old), key_hash(new))
    assert f"alias of {key_hash(old)}" in operate(stack, "callers", "list")
    with stack.http(new) as http, Client(stack.gateway, new) as client:
        eventually(lambda: http.get(f"{JOBS}/{before.job_id}").status_code == 200, "the alias is known", 70)
        assert client.search("boat", "library", 1).results[0].document_id == before.document_id
        again = index(client, stack.site + PAGE, "library")
        assert (again.document_id, again.status) == (before.document_id, "done")
    with stack.http(old) as http:
        listed = {job["job_id"] for job in http.get(JOBS).json()["jobs"]}
    assert listed == {before.job_id, again.job_id}


def test_a_blocked_caller_is_refused_at_once_by_every_service(stack: RunningStack, keys: Keys) -> None:
    key = keys.add()
    routes = {
        JOBS: {"url": stack.site + PAGE},
        "/scraper/enqueue": {"url": stack.site + PAGE},
        "/chunking/enqueue": {"text": "words"},
        "/embedding/search": {"query": "boat"},
        "/embedding/embed": {"texts": ["words"]},
    }
    with stack.http(key) as http, stack.http() as other:
        assert http.get(JOBS).status_code == 200
        operate(stack, "callers", "block", key_hash(key), "a test")
        eventually(lambda: http.get(JOBS).status_code == 403, "the block is seen")
        for path, body in routes.items():
            answer = http.post(path, json=body)
            assert (answer.status_code, code(answer)) == (403, "caller_blocked"), path
            assert openapi.problems(path, answer) == []
        assert other.get(JOBS).status_code == 200
        operate(stack, "callers", "unblock", key_hash(key))
        eventually(lambda: http.get(JOBS).status_code == 200, "the block is gone")


def test_during_maintenance_nothing_is_accepted_and_everything_is_read(rough_stack: RunningStack) -> None:
    """Both commands return when it holds: the very next requests go by it."""
    work = {
        JOBS: {"url": rough_stack.site + PAGE, "corpus_name": "closed"},
        "/orchestrator/uploads": {"size": 5, "sha256": "0" * 64},
        "/chunking/enqueue": {"text": "words"},
    }
    with rough_stack.http() as http:

        def accepted() -> dict[str, httpx.Response]:
            return {path: http.post(path, json=body) for path, body in work.items()}

        # Environments that know that nothing is closed.
        eventually(lambda: all(each.is_success for each in accepted().values()), "work is accepted", 15)
        operate(rough_stack, "maintenance", "on", "Back at ten.")
        try:
            for path, answer in accepted().items():
                assert (answer.status_code, code(answer)) == (503, "maintenance"), path
                assert answer.json()["error"]["message"] == "Back at ten."
                assert answer.headers["Retry-After"] == "60"
                assert openapi.problems(path, answer) == []
            assert http.get(JOBS).status_code == 200
            assert http.post("/embedding/search", json={"query": "x"}).status_code in (200, 404)
        finally:
            operate(rough_stack, "maintenance", "off")
        assert {path: answer.status_code for path, answer in accepted().items() if answer.is_error} == {}


def test_an_internal_caller_submits_for_another_one(stack: RunningStack, keys: Keys) -> None:
    key = keys.add()
    body = {"url": stack.site + PAGE, "corpus_name": "theirs", "on_behalf_of": key_hash(key)}
    with stack.http(stack.ops_key) as ops, stack.http(key) as own, stack.http() as other:
        accepted = ops.post(JOBS, json=body)
        assert (accepted.status_code, openapi.problems(JOBS, accepted)) == (202, [])
        job = f"{JOBS}/{accepted.json()['job_id']}"
        assert [each.get(job).status_code for each in (own, ops, other)] == [200, 404, 404]
        refused = other.post(JOBS, json=body)
        assert (refused.status_code, code(refused)) == (403, "forbidden")


@pytest.fixture
def lonely_stack() -> Iterator[RunningStack]:
    """Yield a stack whose Membership may be down for minutes."""
    with running_stack() as running:
        yield running


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.shows("S5", "R081", "R082", "R083", "R086")
@pytest.mark.fault("F47", "F52")
def test_keys_live_a_minute_without_membership_and_after_they_are_revoked(lonely_stack: RunningStack) -> None:
    stack, keys = lonely_stack, Keys(lonely_stack)
    revoked, claimed = keys.add(), keys.add()
    with (
        stack.http() as known,
        stack.http(stack.other_api_key) as unknown,
        stack.http(revoked) as late,
        Client(stack.gateway, claimed) as client,
    ):
        own = index(client, stack.site + PAGE, "mine")
        # Membership begins to report an id for a key that has jobs, and revokes another key.
        keys.change(claimed, {"caller_id": "user_abc", "caller_type": "user"})
        assert late.get(JOBS).status_code == 200
        keys.revoke(revoked)
        validated, statuses = time.monotonic(), [late.get(JOBS).status_code]
        while statuses[-1] == 200 and time.monotonic() < validated + 70:
            statuses.append(late.get(JOBS).status_code)
        assert statuses[-1] == 401
        assert 50 < time.monotonic() - validated < 62
        assert client.get(own.job_id) == own, "its jobs are those of the id that it had"

        assert known.get(JOBS).status_code == 200
        validated = time.monotonic()
        stack.set_fault_mode("membership", mode="down")
        strangers = [unknown.get(JOBS).status_code for _ in range(1_000)]
        assert set(strangers) == {503}
        refused: int | None = None
        while refused is None and time.monotonic() < validated + 70:
            status = known.get(JOBS).status_code
            refused = None if status == 200 else status
        assert refused == 503
        assert 55 < time.monotonic() - validated < 62
        stack.set_fault_mode("membership", mode="ok")
        eventually(lambda: known.get(JOBS).status_code == 200, "the breaker probes", 40)
        assert unknown.get(JOBS).status_code == 200
