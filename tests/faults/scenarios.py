"""What is enumerated: each way through the pipeline, with the functions whose writes belong to it.

A new way through it is one entry here; its list of writes is written by `WRITE_POINTS=1 pytest tests/faults`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from local.faults.pages import Page
from local.faults.promises.violation import Accepted
from local.faults.rules import Rule
from tests.faults.arena import Arena
from tests.support.stack import eventually

_API_SEND: Final = "OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue"
_CHUNK_CALL: Final = "OrchestratorResults/lambda.Invoke@ChunkingApi"
_EVERYWHERE: Final = (
    *("OrchestratorApi", "ScraperWorker", "OrchestratorResults", "ChunkingApi", "EmbeddingWorker"),
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
    """Whose writes are enumerated; `poller` stands for the event sources."""
    setup: Setup = lambda token: []
    alone: bool = False
    """Its faults cannot be told apart by a job's token: one job at a time."""
    beyond: str = ""
    """Only writes are killed that this other scenario does not have."""


def _small(arena: Arena, token: str) -> Accepted:
    return arena.submit(arena.page(token))


def _large(arena: Arena, token: str) -> Accepted:
    return arena.submit(arena.page(token, "large"))


def _dead_letter(arena: Arena, token: str) -> Accepted:
    """Submit a job whose message is lost; a broken copy of it comes in its place."""
    job = arena.submit(arena.page(token), ends="failed")
    with arena.cloud.database() as database:
        statement = "SELECT payload FROM outbox WHERE job_id = %s"
        (payload,) = database.execute(statement, (job.job_id,)).fetchone() or ("",)
        # As if it had been sent: the sweeper would send it whole.
        sent = "UPDATE outbox SET sent_at = now() WHERE job_id = %s RETURNING id"
        eventually(lambda: database.execute(sent, (job.job_id,)).fetchall(), "its message counts as sent")
    broken = {**json.loads(payload), "url": 7}
    arena.cloud.sqs.send_message(QueueUrl=arena.cloud.queues["ScrapeQueue"], MessageBody=json.dumps(broken))
    return job


def _nowhere(arena: Arena, token: str) -> Accepted:
    """Submit a page that the site does not have, and wait until its job failed."""
    job = arena.submit(Page(token, f"/lost-{token}.html", ""), ends="failed")

    def ended() -> bool:
        if not arena.ended([job]):
            # Its submit may have been killed before the message went out.
            arena.cloud.shorten_claims()
            arena.cloud.sweep()
        return arena.ended([job])

    eventually(ended, f"the first attempt of {token} fails")
    return job


def _retry(arena: Arena, token: str) -> Accepted:
    job = _nowhere(arena, token)
    arena.ask(job, "retry", token)
    return job


def _cancel(arena: Arena, token: str) -> Accepted:
    """Cancel a job whose page is still loading."""
    page = Page(token, f"/slow?seconds=6&id={token}", "")
    job = arena.submit(page, ends="failed")
    arena.ask(job, "cancel", token, {"reason": "of no use"})
    return job


def _swept(place: str) -> Callable[[Arena, str], Accepted]:
    """Return how a job is begun that stops at `place`, which is then left to the sweeper."""

    def begin(arena: Arena, token: str) -> Accepted:
        job = arena.submit(arena.page(token))
        rule = _once(place, token)
        eventually(lambda: any(each["rule"] == rule.name for each in arena.control.fired()), place)
        return job

    return begin


def _once(place: str, token: str) -> Rule:
    return Rule(place, "error", mark=token, name=f"setup-{token}")


SCENARIOS: Final = (
    Scenario("small", _small),
    Scenario("large", _large, beyond="small"),
    Scenario("retry", _retry, ("OrchestratorApi",)),
    Scenario("cancel", _cancel, ("OrchestratorApi",)),
    Scenario(
        "dead_letter",
        _dead_letter,
        ("ScraperWorker", "OrchestratorDeadLetters"),
        lambda token: [Rule(_API_SEND, "lose", mark=token, name=f"setup-{token}")],
    ),
    Scenario(
        "sweep_message",
        _swept(_API_SEND),
        ("OrchestratorSweeper",),
        lambda token: [_once(_API_SEND, token)],
        alone=True,
    ),
    Scenario(
        "sweep_call",
        _swept(_CHUNK_CALL),
        ("OrchestratorSweeper",),
        lambda token: [_once(_CHUNK_CALL, token)],
        alone=True,
    ),
)
