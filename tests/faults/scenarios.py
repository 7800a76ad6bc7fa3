"""Scenarios to enumerate: each path through the pipeline, with the functions whose writes belong to it.

A new path is one entry here; its list of writes is written by `WRITE_POINTS=1 pytest tests/faults`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import httpx

from indexmill.platform.breakers import NAMES
from local.faults.invariants.violation import Accepted
from local.faults.rules import Rule
from local.faults.sample_pages import Page
from tests.faults.arena import Arena
from tests.support.stack import eventually

_API_SEND: Final = "OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue"
_CHUNK_SEND: Final = "OrchestratorResults/sqs.SendMessageBatch@ChunkQueue"
_EMBED_CALL: Final = "EmbeddingWorker/http.post@embeddings"
_EVERYWHERE: Final = (
    *("OrchestratorApi", "ScraperWorker", "OrchestratorResults", "ChunkingWorker", "EmbeddingWorker"),
    "poller",
)

Setup = Callable[[str], list[Rule]]
"""The faults that lead into the scenario, by the job's token."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way of a job."""

    name: str
    begin: Callable[[Arena, str], Accepted]
    """Accept the job of a token and bring about what the scenario is named for."""
    functions: tuple[str, ...] = _EVERYWHERE
    """Functions whose writes are enumerated; `poller` means the event sources."""
    setup: Setup = lambda token: []
    alone: bool = False
    """Its faults cannot be matched by a job's token: one job at a time."""
    sweeps: int = 0
    """It is so many runs of the sweeper, whose writes are all that counts."""
    then: Callable[[Arena, str, Accepted], Accepted | None] | None = None
    """What is asked for once the job has come to its first end; the job that was made by it, if one was."""
    slow: bool = False
    """It takes a minute: for `make test-long`."""
    beyond: str = ""
    """Only writes are killed that this other scenario has not, or not so often."""


def _small(arena: Arena, token: str) -> Accepted:
    return arena.submit(arena.page(token))


def _large(arena: Arena, token: str) -> Accepted:
    return arena.submit(arena.page(token, "large"))


def _dead_letter(arena: Arena, token: str) -> Accepted:
    """Submit a job whose message was received too often."""
    job, payload = _message(arena, token, "failed")
    arena.cloud.sqs.send_message(QueueUrl=arena.cloud.queues["ScrapeDlq"], MessageBody=payload)
    return job


def _unreadable(arena: Arena, token: str) -> Accepted:
    """Submit a job whose message arrives broken, so that the whole one is missing."""
    job, payload = _message(arena, token, "done")
    broken = json.dumps({**json.loads(payload), "url": 7})
    arena.cloud.sqs.send_message(QueueUrl=arena.cloud.queues["ScrapeQueue"], MessageBody=broken)
    return job


def _message(arena: Arena, token: str, ends: str) -> tuple[Accepted, str]:
    """Submit a job whose message counts as sent and never comes; return it with the message."""
    job = arena.submit(arena.page(token), ends=ends)
    statement = "SELECT payload FROM outbox WHERE job_id = %s AND sent_at IS NOT NULL"
    with arena.cloud.database() as database:
        found = eventually(
            lambda: database.execute(statement, (job.job_id,)).fetchone(), "its message counts as sent"
        )
    return job, str(found[0])


def _flaky(arena: Arena, token: str) -> Accepted:
    """Submit a page that fails once; its text is every such page's."""
    return arena.submit(Page(token, f"/flaky/{token}?fails=1", ""))


def _model_away(arena: Arena, token: str) -> Accepted:
    """Submit a job for whose text the model fails once; no other job's failures count for the breaker."""
    table = arena.stack.resources["StateTable"]
    for name in NAMES:
        arena.cloud.dynamodb.delete_item(TableName=table, Key={"pk": {"S": f"breaker#{name}"}})
    return _small(arena, token)


def _swept(place: str) -> Callable[[Arena, str], Accepted]:
    """Return how a job is begun that stops at `place`, which is then left to the sweeper."""

    def begin(arena: Arena, token: str) -> Accepted:
        job = arena.submit(arena.page(token))
        rule = _once(place, token)
        eventually(lambda: any(each["rule"] == rule.name for each in arena.control.fired()), place)
        return job

    return begin


def _lose(token: str) -> list[Rule]:
    return [Rule(_API_SEND, "lose", mark=token, name=f"setup-{token}")]


def _once(place: str, token: str) -> Rule:
    return Rule(place, "error", mark=token, name=f"setup-{token}")


def _lost(arena: Arena, token: str) -> Accepted:
    """Submit a job whose message is lost silently."""
    return _message(arena, token, "done")[0]


def _missing(arena: Arena, token: str) -> Accepted:
    """Submit a page that is not there yet."""
    return arena.submit(replace(arena.page(token), path=f"/pages/later/{token}.html"))


def _retry(arena: Arena, token: str, job: Accepted) -> None:
    """Put the page there and ask for another attempt until it is granted."""
    later = arena.site_root / "pages" / "later"
    later.mkdir(exist_ok=True)
    (later / f"{token}.html").write_bytes((arena.site_root / "pages" / f"{token}.html").read_bytes())
    _ask(arena, token, f"/orchestrator/jobs/{job.job_id}/retry")


def _replay(arena: Arena, token: str, job: Accepted) -> Accepted:
    """Replay the job from its stored page; the site is not fetched."""
    (arena.site_root / "pages" / f"{token}.html").unlink()
    path = f"/orchestrator/jobs/{job.job_id}/replay"
    reported = _ask(arena, token, path, until=(202,), source="stored").json()
    assert (reported["replay_of"], reported["job_id"] != job.job_id) == (job.job_id, True)
    again = replace(job, job_id=reported["job_id"])
    arena.accepted.append(again)
    return again


def _cancel(arena: Arena, token: str) -> Accepted:
    """Submit a page that takes its time, and cancel the job meanwhile."""
    job = arena.submit(Page(token, f"/slow?seconds=2&page={token}", ""), ends="failed")
    answer = _ask(arena, token, f"/orchestrator/jobs/{job.job_id}/cancel", reason="test")
    if answer.status_code == 409 and arena.statuses([job])[job.job_id] != "failed":
        # The function that canceled was killed, and the page was there before the next one came.
        return replace(job, ends="done")
    return job


def _cancel_embedding(arena: Arena, token: str) -> Accepted:
    """Submit a page, and cancel the job while its vectors are made or their maker was just killed."""
    page = arena.page(token)
    job = arena.submit(page, ends="failed")
    eventually(lambda: any(token in each["rule"] for each in arena.control.fired()), "the model is asked")
    answer = _ask(arena, token, f"/orchestrator/jobs/{job.job_id}/cancel", reason="test")
    if answer.status_code == 409 and arena.statuses([job])[job.job_id] != "failed":
        # The one who canceled was killed, and the vectors were there before the next one came.
        return replace(job, ends="done", sentence=page.sentence)
    return job


def _ask(
    arena: Arena, token: str, path: str, *, until: tuple[int, ...] = (200, 202, 409), **body: str
) -> httpx.Response:
    """Post until it is done, by this request or by one before whose answer was lost; the last answer."""

    def done() -> httpx.Response | None:
        answer = caller.post(path, json=body, headers={"X-Request-Id": token})
        assert answer.status_code in until or answer.status_code >= 500, answer.text
        return answer if answer.status_code < 500 else None

    with arena.stack.http() as caller:
        return eventually(done, path)


SCENARIOS: Final = (
    Scenario("small", _small),
    Scenario("large", _large, beyond="small"),
    Scenario("flaky_page", _flaky, beyond="small"),
    Scenario(
        "model_away",
        _model_away,
        setup=lambda token: [_once(_EMBED_CALL, token)],
        alone=True,
        slow=True,
        beyond="small",
    ),
    Scenario("retry", _missing, then=_retry, beyond="small"),
    Scenario("replay", _small, then=_replay, slow=True, beyond="small"),
    Scenario("cancel", _cancel, beyond="small"),
    Scenario(
        "cancel_embedding",
        _cancel_embedding,
        ("OrchestratorApi", "EmbeddingWorker"),
        lambda token: [Rule(_EMBED_CALL, "delay", seconds=3.0, mark=token, name=f"setup-{token}")],
        slow=True,
        beyond="cancel",
    ),
    Scenario(
        "lost_message",
        _lost,
        ("OrchestratorSweeper",),
        _lose,
        alone=True,
        sweeps=2,
        slow=True,
        beyond="sweep_message",
    ),
    Scenario("dead_letter", _dead_letter, ("OrchestratorDeadLetters",), _lose),
    Scenario("unreadable", _unreadable, ("ScraperWorker", "OrchestratorDeadLetters"), _lose, beyond="small"),
    Scenario(
        "sweep_message",
        _swept(_API_SEND),
        ("OrchestratorSweeper",),
        lambda token: [_once(_API_SEND, token)],
        alone=True,
        sweeps=1,
    ),
    Scenario(
        "sweep_chunk",
        _swept(_CHUNK_SEND),
        ("OrchestratorSweeper",),
        lambda token: [_once(_CHUNK_SEND, token)],
        alone=True,
        sweeps=1,
        beyond="sweep_message",
    ),
)
