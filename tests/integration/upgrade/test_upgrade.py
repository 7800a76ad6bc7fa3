"""Code of the previous release and of this one, on one database and the same queues."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest

from tests.support.releases import Release
from tests.support.upgrade import (
    CALLER,
    INTERNAL,
    ONE_AT_A_TIME,
    UNAVAILABLE,
    WHOLE_LIFE,
    World,
    by,
    names,
)

pytestmark = pytest.mark.integration

_numbers = itertools.count(1)
METHOD = "arn:aws:execute-api:eu-west-1:000000000000:api/dev/GET/orchestrator/jobs"


# --- the previous release on this release's schema


@pytest.mark.fault("F70")
def test_old_code_takes_jobs_through_all_stages(world: World) -> None:
    page, missing = names(2)
    key = {"Idempotency-Key": page}
    job_ids = world.submit(world.old, page, f"missing-{missing}", headers=key)
    assert world.submit(world.old, page, f"missing-{missing}", headers=key) == job_ids
    world.queues.drain(by(world.old))
    done, failed = job_ids
    assert (world.life(done), world.life(failed)) == (WHOLE_LIFE, ["pending", "scraping", "failed"])
    assert world.messages(done) == [("scraping", 1), ("chunking", 1), ("embedding", 1)]
    assert world.rows("SELECT job_id, published IS NOT NULL, chunk_count FROM documents") == [(done, True, 1)]
    history = world.old.http("GET", f"/orchestrator/jobs/{done}/history", caller=CALLER)
    assert history["intact"]
    listed = world.old.http("GET", "/orchestrator/jobs", caller=CALLER)["jobs"]
    assert {job["job_id"]: job["status"] for job in listed} == {done: "done", failed: "failed"}
    ((batch,),) = world.rows("SELECT DISTINCT batch_id FROM jobs")
    summary = world.old.http("GET", f"/orchestrator/batches/{batch}", caller=CALLER)
    assert (summary["done"], summary["failed"], summary["finished"]) == (1, 1, True)


@pytest.mark.shows("P080")
def test_a_list_of_scopes_binds_where_authorizer_and_function_are_new(world: World) -> None:
    world.deploy(world.new)
    for key, status in (("[]", 403), ('["embedding:*"]', 403), ('["orchestrator:read"]', 200)):
        event = {"methodArn": METHOD, "headers": {"X-API-Key": key}}
        old, new = (each.invoke("Authorizer", event)["context"] for each in (world.old, world.new))
        for release, caller, wanted in (
            (world.new, old, 200),
            (world.old, new, 200),
            (world.new, new, status),
        ):
            release.http("GET", "/orchestrator/jobs", caller=caller, status=wanted)


def test_old_code_cancels_retries_and_replays(world: World) -> None:
    (job_id,) = world.submit(world.old, *names())
    assert world.act(world.old, job_id, "cancel", {"reason": "wrong page"})["error"]["code"] == "canceled"
    world.act(world.old, job_id, "retry")
    world.queues.drain(by(world.old))
    assert world.life(job_id) == ["pending", "scraping", "failed", *WHOLE_LIFE]
    replay = world.act(world.old, job_id, "replay", {"source": "stored"})["job_id"]
    world.queues.drain(by(world.old))
    assert world.life(replay) == WHOLE_LIFE
    assert world.old.http("GET", f"/orchestrator/jobs/{replay}/diff", caller=CALLER)["same"] is True


def test_a_crawl_of_new_code_is_shown_by_old_code(world: World) -> None:
    (far,) = names()
    body = {"url": f"{world.site.address}/to-{far}", "kind": "crawl", "crawl": {"depth": 1}}
    batch_id = world.new.http("POST", "/orchestrator/jobs", body, caller=CALLER)["batch_id"]
    world.queues.drain(by(world.new))
    listed = world.old.http("GET", "/orchestrator/jobs", caller=CALLER, query={"batch_id": batch_id})
    assert {job["url"].rpartition("/")[2] for job in listed["jobs"]} == {far, f"to-{far}"}


def test_old_code_starts_and_fails_jobs_that_wait_for_others(world: World) -> None:
    good, bad, after_good, after_bad = names(4)
    first, failing = world.submit(world.old, good, f"missing-{bad}")
    (waiting,) = world.submit(world.old, after_good, depends_on=[first])
    (lost,) = world.submit(world.old, after_bad, depends_on=[failing])
    assert world.statuses(waiting, lost) == ["pending", "pending"]
    world.queues.drain(by(world.old))
    assert (world.life(waiting), world.life(lost)) == (WHOLE_LIFE, ["pending", "failed"])
    assert world.messages(lost) == []


def test_old_code_keeps_dead_letters_and_notes_waits(world: World) -> None:
    poison, waiting = world.submit(world.old, *names(2))
    world.queues.move_to_dlq("ScrapeQueue", "ScrapeDlq", poison)
    world.queues.discard("ScrapeQueue")
    note = {"tries": 2, "next_retry_at": "2026-03-14T12:00:00Z", "retry_in_s": 30, "cause": "http_503"}
    report = {"schema": "indexmill.result.v1", "message_id": "m", "job_id": waiting, "attempt": 1}
    world.queues.send(
        "CallbacksQueue", json.dumps({**report, "stage": "scraping", "status": "retrying", "retrying": note})
    )
    world.queues.drain(by(world.old))
    assert world.rows("SELECT error->>'code' FROM jobs WHERE id = %s", poison) == [("poison_message",)]
    assert world.rows("SELECT job_id, cause, stage FROM dead_letters") == [
        (poison, "poison_message", "scraping")
    ]
    assert world.rows(
        "SELECT tries, retry_cause, next_retry_at > now() FROM jobs WHERE id = %s", waiting
    ) == [(2, "http_503", True)]
    told = world.new.http("GET", f"/orchestrator/jobs/{waiting}", caller=CALLER)
    assert (told["attempts"], told["last_error"]) == (2, None)
    # What new code notes is read by old code, and ended by it.
    failure = {"code": "http_503", "message": "No."}
    note |= {"tries": 3, "retry_in_s": 60, "failure": failure}
    report |= {"message_id": "m2", "stage": "scraping", "status": "retrying", "retrying": note}
    world.queues.send("CallbacksQueue", json.dumps(report))
    world.queues.drain(by(world.new))
    told = world.new.http("GET", f"/orchestrator/jobs/{waiting}", caller=CALLER)
    assert told["last_error"].items() >= failure.items()
    assert world.old.http("GET", f"/orchestrator/jobs/{waiting}", caller=CALLER)["attempts"] == 3


def test_old_code_applies_results_over_http(world: World) -> None:
    (job_id,) = world.submit(world.old, *names())
    world.queues.discard("ScrapeQueue")
    report = {"stage": "scraping", "status": "success", "result": {"text": "Some words.", "title": "Title"}}
    assert world.act(world.old, job_id, "complete", report, caller=INTERNAL) == {"status": "chunking"}
    world.queues.drain(by(world.old))
    assert world.life(job_id) == WHOLE_LIFE


def test_old_code_sweeps_what_could_not_be_sent(world: World) -> None:
    world.deploy(world.old, SCRAPE_QUEUE_URL=UNAVAILABLE)
    (job_id,) = world.submit(world.old, *names())
    world.deploy(world.old, CHUNK_QUEUE_URL=UNAVAILABLE, EMBED_QUEUE_URL=UNAVAILABLE)
    assert world.messages(job_id, sent=False) == [("scraping", 1)]
    for stage in ("chunking", "embedding"):
        world.sweep(world.old)
        world.queues.drain(by(world.old))
        assert world.messages(job_id, sent=False) == [(stage, 1)]
        world.deploy(world.old, EMBED_QUEUE_URL=UNAVAILABLE)
    world.deploy(world.old)
    world.change("INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'a test', 'us')")
    world.sweep(world.old)
    world.queues.drain(by(world.old))
    assert world.life(job_id) == WHOLE_LIFE
    assert world.rows("SELECT kind, subject FROM incidents WHERE closed_at IS NULL") == [
        ("paused", "scraping")
    ]


def test_old_code_purges(world: World) -> None:
    world.submit(world.old, *names())
    world.queues.drain(by(world.old))
    world.change("UPDATE jobs SET ended_at = now() - interval '30 days'")
    world.change("UPDATE outbox SET created_at = now() - interval '30 days'")
    world.change("UPDATE inbox SET received_at = now() - interval '30 days'")
    assert world.sweep(world.old)["purged"] == 3 + 3
    assert world.rows("SELECT FROM outbox") == world.rows("SELECT FROM inbox") == []


# --- both releases at once


@pytest.fixture(params=["previous first", "this first"])
def order(request: pytest.FixtureRequest, world: World) -> tuple[Release, Release]:
    """Return the release that writes and the one that reads."""
    return (world.old, world.new) if request.param == "previous first" else (world.new, world.old)


@pytest.mark.fault("F70")
def test_a_job_that_one_release_left_pending_is_admitted_by_the_other(
    world: World, order: tuple[Release, Release]
) -> None:
    first, second = order
    running_page, waiting_page, canceled_page = names(3)
    running, waiting, canceled = world.submit(
        first, running_page, waiting_page, canceled_page, caller=ONE_AT_A_TIME
    )
    for release in (second, first):
        world.sweep(release)
    assert world.statuses(running, waiting, canceled) == ["scraping", "pending", "pending"]
    assert [body["job_id"] for body in world.queues.bodies("ScrapeQueue")] == [running]
    world.act(second, canceled, "cancel", {"reason": "a test"}, caller=ONE_AT_A_TIME)
    world.queues.drain(by(second))
    assert world.life(running) == world.life(waiting) == WHOLE_LIFE
    assert world.life(canceled) == ["pending", "failed"]
    pages = (running_page, waiting_page, canceled_page)
    assert [world.site.fetched[page] for page in pages] == [1, 1, 0]
    assert [world.site.embeddings_of(page) for page in pages] == [1, 1, 0]


def test_a_retried_job_waits_for_its_place_in_either_release(
    world: World, order: tuple[Release, Release]
) -> None:
    first, second = order
    (again,) = world.submit(first, *names(), caller=ONE_AT_A_TIME)
    while world.statuses(again) != ["embedding"]:
        assert world.queues.deliver(by(first), "ScrapeQueue", "CallbacksQueue", "ChunkQueue")
    world.act(first, again, "cancel", {"reason": "a test"}, caller=ONE_AT_A_TIME)
    (running,) = world.submit(first, *names(), caller=ONE_AT_A_TIME)
    world.act(first, again, "retry", caller=ONE_AT_A_TIME)
    world.sweep(second)
    assert world.statuses(again, running) == ["pending", "scraping"]
    assert [body["attempt"] for body in world.queues.bodies("EmbedQueue")] == [1]
    world.queues.drain(by(second))
    assert world.life(running) == WHOLE_LIFE
    assert world.life(again) == [*WHOLE_LIFE[:-1], "failed", "pending", "embedding", "done"]


STEPS = ("submit", "ScraperWorker", "scraping", "chunking", "EmbeddingWorker", "embedding")
EVERY_WAY = tuple(itertools.product((False, True), repeat=len(STEPS)))
"""Whether this release takes each step."""
MANY_WAYS = tuple(
    way for way in EVERY_WAY if way[4] == way[0] ^ way[1] ^ way[2] and way[5] == sum(way[1:4]) % 2
)
"""In these, too, any three steps are taken by the two releases in every combination."""


@pytest.mark.fault("F69", "F70")
@pytest.mark.parametrize(
    "ways", [MANY_WAYS, pytest.param(EVERY_WAY, marks=pytest.mark.long)], ids=lambda ways: str(len(ways))
)
def test_a_job_may_change_the_release_at_every_step(world: World, ways: tuple[tuple[bool, ...], ...]) -> None:
    """Each job takes another way, its steps by either release; the previous one has no chunking worker."""
    pages, jobs = names(len(ways)), {}
    half = len(ways) // 2
    submitted = world.submit(world.old, *pages[:half]) + world.submit(world.new, *pages[half:])
    for job_id, way in zip(submitted, ways, strict=True):
        jobs[job_id] = {step: world.new if new else world.old for step, new in zip(STEPS, way, strict=True)}

    def choose(function: str, body: dict[str, Any]) -> Release:
        step = body["stage"] if function == "OrchestratorResults" else function
        return jobs[body["job_id"]].get(step, world.new)

    world.queues.drain(choose)
    assert Counter(tuple(world.life(job_id)) for job_id in jobs) == {tuple(WHOLE_LIFE): len(jobs)}
    assert world.rows("SELECT count(*), count(published), sum(chunk_count) FROM documents") == [
        (len(jobs), len(jobs), len(jobs))
    ]
    assert {world.site.fetched[page] for page in pages} == {1}
    assert {world.site.embeddings_of(page) for page in pages} == {1}
    assert world.rows("SELECT stage FROM outbox WHERE sent_at IS NULL") == []


@pytest.mark.parametrize("stage", ["scraping", "chunking", "embedding"])
def test_old_code_retries_what_new_code_kept(world: World, stage: str) -> None:
    world.deploy(world.new, CHUNK_QUEUE_URL=UNAVAILABLE, CHUNKING_FUNCTION="away")
    (job_id,) = world.submit(world.new, *names())
    if stage != "scraping":
        world.queues.drain(by(world.new))
    world.deploy(world.new)
    if stage == "embedding":
        world.sweep(world.new)
        while world.statuses(job_id) != [stage]:
            assert world.queues.deliver(by(world.new), "ChunkQueue", "CallbacksQueue")
    assert world.statuses(job_id) == [stage]
    # What it does not put into a queue itself is left to the sweeper.
    world.deploy(world.old, RESULTS_FUNCTION="away")
    world.act(world.old, job_id, "cancel", {"reason": "a test"})
    world.act(world.old, job_id, "retry")
    world.queues.drain(by(world.new))
    world.sweep(world.new)
    world.queues.drain(by(world.new))
    at = WHOLE_LIFE.index(stage)
    assert world.life(job_id) == [*WHOLE_LIFE[: at + 1], "failed", "pending", *WHOLE_LIFE[at:]]
