"""Upgrades from and rollbacks to an older release: jobs, messages and rows that are taken over."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.releases import BEFORE_CHUNK_QUEUE, PREVIOUS
from tests.support.repository import ROOT
from tests.support.upgrade import (
    BEGUN,
    CALLED,
    INTERNAL,
    KEY,
    LEFT,
    TABLE_FILES,
    UNAVAILABLE,
    WHOLE_LIFE,
    Begun,
    World,
    by,
    names,
)

pytestmark = pytest.mark.integration

of_before_the_chunk_queue = pytest.mark.parametrize("releases", [BEFORE_CHUNK_QUEUE], indirect=True)


@pytest.mark.fault("F69", "F70")
@pytest.mark.parametrize(
    ("releases", "expected", "paid"),
    # This release may embed and not publish a page on the older schema, which it then embeds again.
    [(PREVIOUS, BEGUN, {}), (BEFORE_CHUNK_QUEUE, CALLED, {"message to embed": 2})],
    indirect=["releases"],
    ids=["the previous release", "the one before the chunk queue"],
)
def test_new_code_finishes_what_old_code_began(
    before: World, expected: dict[str, Any], paid: dict[str, int]
) -> None:
    world, begun = before, Begun(before, expected)
    jobs, pages, new = begun.jobs, begun.pages, by(world.new)
    left = {job_id: [each for each in what if each] for job_id, *what in world.rows(LEFT)}
    assert {kind: left[job_id] for kind, job_id in jobs.items()} == {
        kind: each[0] for kind, each in expected.items()
    }
    world.create(world.new)
    # Until the database is migrated this release may be unable to work, but loses nothing.
    world.queues.deliver(new, hidden_s=10)
    world.new.invoke_unchecked("OrchestratorSweeper", {})
    files = dict(world.rows(TABLE_FILES))
    world.new.migrate(world.url)
    # A table that is rewritten is locked for as long as that takes.
    assert {name: file for name, file in world.rows(TABLE_FILES) if name in files} == files
    assert world.submit(world.new, pages["done"], headers=KEY) == [jobs["done"]]
    for _ in range(3):
        world.sweep(world.new)
        world.queues.drain(new)
    for kind in (
        "failed in scraping",
        "canceled in scraping",
        "canceled in chunking",
        "canceled in embedding",
    ):
        world.act(world.new, jobs[kind], "retry")
    replay = world.act(world.new, jobs["done"], "replay", {"source": "stored"})["job_id"]
    world.queues.drain(new)
    lives = {kind: world.life(job_id) for kind, job_id in jobs.items()}
    assert lives == {kind: life for kind, (_, life) in expected.items()}
    assert world.life(replay) == WHOLE_LIFE
    assert world.rows("SELECT job_id, stage FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL") == []
    fetched = {kind: world.site.fetched[page] for kind, page in pages.items()}
    # The message of the canceled job was sent before; the retry fetches the missing page again.
    assert {kind: count for kind, count in fetched.items() if count != 1} == {
        "canceled in scraping": 2,
        "failed in scraping": 2,
        "dead letter": 0,
    }
    done = [kind for kind, (_, life) in expected.items() if life[-1] == "done"]
    embedded = {kind: world.site.embeddings_of(pages[kind]) for kind in done}
    assert embedded == {**dict.fromkeys(done, 1), "canceled in embedding": 2, **paid}
    assert world.rows("SELECT count(*), count(published) FROM documents") == [(len(done), len(done))]


def _statement(pattern: str) -> str:
    """Return the statement of docs/deploying.md that a rollback needs."""
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    (found,) = re.findall(pattern, page, re.MULTILINE)
    return str(found)


def test_after_a_rollback_old_code_starts_what_a_site_held_back(world: World) -> None:
    world.deploy(world.new, DOMAIN_RATES="*=0.001:1")
    jobs = world.submit(world.new, *names(3))
    held = world.rows("SELECT id FROM jobs WHERE status = 'pending' AND blocked_by = 'domain' ORDER BY id")
    assert len(held) > 0
    world.deploy(world.old)
    world.sweep(world.old)
    world.queues.drain(by(world.old))
    assert world.rows("SELECT id FROM jobs WHERE status = 'pending' ORDER BY id") == held
    world.change(_statement("`(UPDATE jobs SET blocked_by = .*)`"))
    world.sweep(world.old)
    world.queues.drain(by(world.old))
    assert [world.life(job_id) for job_id in jobs] == [WHOLE_LIFE] * 3


def _with_unsent_chunk_message(world: World) -> str:
    """Return a job of new code whose message to Chunking could not be sent."""
    world.deploy(world.new, CHUNK_QUEUE_URL=UNAVAILABLE, CHUNKING_FUNCTION="away")
    (job_id,) = world.submit(world.new, *names())
    world.queues.drain(by(world.new))
    assert world.messages(job_id, sent=False) == [("chunking", 1)]
    return job_id


@of_before_the_chunk_queue
def test_old_code_loses_no_message_that_it_cannot_send(world: World) -> None:
    job_id = _with_unsent_chunk_message(world)
    for _ in range(2):
        world.expire_claims()
        world.old.invoke_unchecked("OrchestratorSweeper", {})
    world.deploy(world.new)
    world.sweep(world.new)
    world.queues.drain(by(world.new))
    assert world.life(job_id) == WHOLE_LIFE


@of_before_the_chunk_queue
def test_after_a_rollback_old_code_sends_what_new_code_left_unsent(world: World) -> None:
    """With the statement of docs/deploying.md: without it the chunk message stops the old relay's batch."""
    job_id = _with_unsent_chunk_message(world)
    world.change(_statement(r"^ *(UPDATE outbox SET kind = .*;)$"))
    world.deploy(world.old)
    world.sweep(world.old)
    world.queues.drain(by(world.old))
    assert world.life(job_id) == WHOLE_LIFE


@of_before_the_chunk_queue
def test_direct_invokes_of_old_code_that_reach_new_code_fail_no_job(world: World) -> None:
    world.deploy(world.old, AWS_ENDPOINT_URL_LAMBDA=world.new.lambda_endpoint)
    called, reported = world.submit(world.old, *names(2))
    report = {"stage": "scraping", "status": "success", "result": {"text": "Some words.", "title": "Title"}}
    world.act(world.old, reported, "complete", report, caller=INTERNAL)
    world.queues.drain(by(world.old))
    for _ in range(5):
        world.expire_claims()
        world.old.invoke_unchecked("OrchestratorSweeper", {})
    assert "failed" not in world.statuses(called, reported)
    world.sweep(world.new)
    world.queues.drain(by(world.new))
    assert world.life(called) == world.life(reported) == WHOLE_LIFE
