"""Upgrades from and rollbacks to the previous release: jobs, messages and rows that are taken over."""

from __future__ import annotations

import pytest

from tests.support.upgrade import BEGUN, KEY, LEFT, TABLE_FILES, WHOLE_LIFE, Begun, World, by, names

pytestmark = pytest.mark.integration


@pytest.mark.fault("F69", "F70")
def test_new_code_finishes_what_old_code_began(before: World) -> None:
    world, begun = before, Begun(before)
    jobs, pages, new = begun.jobs, begun.pages, by(world.new)
    left = {job_id: [each for each in what if each] for job_id, *what in world.rows(LEFT)}
    assert {kind: left[job_id] for kind, job_id in jobs.items()} == {
        kind: each[0] for kind, each in BEGUN.items()
    }
    world.create(world.new)
    # Until the database is migrated this release may be unable to work, but loses nothing. What it embeds
    # it may be unable to publish.
    embedded = {kind: world.site.embeddings_of(page) for kind, page in pages.items()}
    world.queues.deliver(new, hidden_s=10)
    unpublished = {kind: world.site.embeddings_of(page) - embedded[kind] for kind, page in pages.items()}
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
    assert lives == {kind: life for kind, (_, life) in BEGUN.items()}
    assert world.life(replay) == WHOLE_LIFE
    assert world.rows("SELECT job_id, stage FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL") == []
    fetched = {kind: world.site.fetched[page] for kind, page in pages.items()}
    # This release reads which jobs the older one canceled; the retry fetches the missing page again.
    assert {kind: count for kind, count in fetched.items() if count != 1} == {
        "failed in scraping": 2,
        "dead letter": 0,
    }
    done = [kind for kind, (_, life) in BEGUN.items() if life[-1] == "done"]
    embedded = {kind: world.site.embeddings_of(pages[kind]) for kind in done}
    expected = {**dict.fromkeys(done, 1), "canceled in embedding": 2}
    assert embedded == {kind: count + unpublished[kind] for kind, count in expected.items()}
    assert world.rows("SELECT count(*), count(published) FROM documents") == [(len(done), len(done))]


def test_after_a_rollback_old_code_starts_what_a_site_held_back(world: World) -> None:
    world.deploy(world.new, DOMAIN_RATES="*=0.001:1")
    jobs = world.submit(world.new, *names(3))
    held = world.rows("SELECT id FROM jobs WHERE status = 'pending' AND blocked_by = 'domain' ORDER BY id")
    assert len(held) > 0
    world.change("UPDATE sites SET due_at = now()")
    world.deploy(world.old)
    world.sweep(world.old)
    world.queues.drain(by(world.old))
    assert [world.life(job_id) for job_id in jobs] == [WHOLE_LIFE] * 3
