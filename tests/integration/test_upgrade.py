"""An upgrade: the previous release and this one, on one database and the same queues."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from local.backends.ministack import MiniStack
from local.backends.postgres import create_database, drop_database
from tests.support.aiohttp_server import served
from tests.support.releases import Release, extract_previous
from tests.support.repository import ROOT
from tests.support.upgrade import (
    BEGUN,
    BROKEN_CHAIN,
    CALLER,
    INTERNAL,
    KEY,
    LEFT,
    ONE_AT_A_TIME,
    TABLE_FILES,
    UNAVAILABLE,
    WHOLE_LIFE,
    Begun,
    Releases,
    Site,
    World,
    by,
    names,
)

pytestmark = pytest.mark.integration

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    with served(site.app) as site.address:
        yield site


@pytest.fixture(scope="module")
def releases(
    site: Site, ministack: MiniStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Releases]:
    tree = extract_previous(tmp_path_factory.mktemp("previous"))
    log = tmp_path_factory.mktemp("releases") / "log"
    old, new = (
        Release(name, folder, ministack.endpoint, site.address, log)
        for name, folder in (("previous", tree), ("this", ROOT))
    )
    yield old, new
    old.close()
    new.close()


@pytest.fixture
def world(database_url: str, releases: Releases, site: Site) -> Iterator[World]:
    """Both releases on this release's schema and queues."""
    world = World(database_url, f"upgrade-{next(_numbers)}", releases, site)
    world.create(world.new)
    world.deploy(world.old)
    yield world
    assert world.rows(BROKEN_CHAIN) == []


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
    world.deploy(world.old, CHUNKING_FUNCTION="away", EMBED_QUEUE_URL=UNAVAILABLE)
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


def test_old_code_loses_no_message_that_it_cannot_send(world: World) -> None:
    world.deploy(world.new, CHUNK_QUEUE_URL=UNAVAILABLE, CHUNKING_FUNCTION="away")
    (job_id,) = world.submit(world.new, *names())
    world.queues.drain(by(world.new))
    assert world.messages(job_id, sent=False) == [("chunking", 1)]
    for _ in range(2):
        world.expire_claims()
        world.old.invoke_unchecked("OrchestratorSweeper", {})
    world.deploy(world.new)
    world.sweep(world.new)
    world.queues.drain(by(world.new))
    assert world.life(job_id) == WHOLE_LIFE


def test_after_a_rollback_old_code_sends_what_new_code_left_unsent(world: World) -> None:
    """With the statement of docs/deploying.md: without it the chunk message stops the old relay's batch."""
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r"^ *(UPDATE outbox SET kind = .*;)$", page, re.MULTILINE)
    world.deploy(world.new, CHUNK_QUEUE_URL=UNAVAILABLE, CHUNKING_FUNCTION="away")
    (job_id,) = world.submit(world.new, *names())
    world.queues.drain(by(world.new))
    assert world.messages(job_id, sent=False) == [("chunking", 1)]
    world.change(statement)
    world.deploy(world.old)
    world.sweep(world.old)
    world.queues.drain(by(world.old))
    assert world.life(job_id) == WHOLE_LIFE


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


# --- this release on what the previous one left


@pytest.fixture
def before(postgres_server: str, releases: Releases, site: Site) -> Iterator[World]:
    """The previous release alone, on its own schema and queues."""
    number = next(_numbers)
    url = create_database(postgres_server, f"upgrade_{number}")
    world = World(url, f"upgrade-{number}", releases, site)
    world.old.migrate(url)
    world.create(world.old)
    yield world
    assert world.rows(BROKEN_CHAIN) == []
    drop_database(postgres_server, f"upgrade_{number}")


@pytest.mark.fault("F69", "F70")
def test_new_code_finishes_what_old_code_began(before: World) -> None:
    world, begun = before, Begun(before)
    jobs, pages, new = begun.jobs, begun.pages, by(world.new)
    left = {job_id: [each for each in what if each] for job_id, *what in world.rows(LEFT)}
    assert {kind: left[job_id] for kind, job_id in jobs.items()} == {
        kind: each[0] for kind, each in BEGUN.items()
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
    assert lives == {kind: life for kind, (_, life) in BEGUN.items()}
    assert world.life(replay) == WHOLE_LIFE
    assert world.rows("SELECT job_id, stage FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL") == []
    fetched = {kind: world.site.fetched[page] for kind, page in pages.items()}
    # The message of the canceled job was sent before; the retry fetches the missing page again.
    assert {kind: count for kind, count in fetched.items() if count != 1} == {
        "canceled in scraping": 2,
        "failed in scraping": 2,
        "dead letter": 0,
    }
    done = [kind for kind, (_, life) in BEGUN.items() if life[-1] == "done"]
    embedded = {kind: world.site.embeddings_of(pages[kind]) for kind in done}
    # The one was paid for before the database was migrated, and could not be published then.
    twice = {"message to embed": 2, "canceled in embedding": 2}
    assert embedded == {**dict.fromkeys(done, 1), **twice}
    assert world.rows("SELECT count(*), count(published) FROM documents") == [(len(done), len(done))]
