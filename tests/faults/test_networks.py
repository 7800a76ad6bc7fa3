"""Network faults on the functions' connections break no invariant."""

from __future__ import annotations

import time

import httpx
import pytest

from local.faults.invariants.violation import Accepted
from local.faults.rules import parse
from local.faults.toxics import Toxic
from tests.faults.arena import Arena
from tests.support.stack import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

BREAKERS_S = 90.0
"""Failures of the test before may count: then a breaker opens for 30 s, and for 30 s more after its probe."""

COMMIT = Toxic("swallow_reply", pattern="COMMIT", times=1)
LOST_REPLIES = {
    "submit": COMMIT,
    "a result": Toxic("swallow_reply", pattern="INSERT INTO inbox", times=1),
    "publishing": Toxic("swallow_reply", pattern="UPDATE documents", times=1),
    "marking as sent": Toxic("swallow_reply", pattern="SET sent_at", times=1),
    "four commits": Toxic("swallow_reply", pattern="COMMIT", times=4),
}


def ends(arena: Arena, job: Accepted, within_s: float = BREAKERS_S) -> None:
    arena.end_with_sweeps([job], within_s)


@pytest.mark.fault("F5")
@pytest.mark.parametrize("toxic", LOST_REPLIES.values(), ids=LOST_REPLIES)
def test_a_lost_answer_of_the_database_loses_no_job(kept: Arena, toxic: Toxic) -> None:
    page = kept.page(kept.token("lost"))
    before = len(kept.control.fired())
    kept.control.set_toxics(postgres=toxic)
    ends(kept, kept.submit(page))
    expected = ["postgres swallow_reply"] * (toxic.times or 1)
    # A commit whose answer is swallowed has happened: its job may be seen done before that is noted.
    eventually(lambda: len(kept.control.fired()) >= before + len(expected), "the answers are lost")
    assert [each["rule"] for each in kept.control.fired()[before:]] == expected


@pytest.mark.parametrize(
    "toxic",
    [
        Toxic("limit_data", size=200, times=2),
        Toxic("slicer", size=200, seconds=0.01),
        Toxic("latency", seconds=0.3),
        Toxic("swallow_reply", pattern="POST", times=2),
    ],
    ids=lambda toxic: toxic.effect,
)
def test_a_bad_line_to_the_model_loses_no_job(kept: Arena, toxic: Toxic) -> None:
    page = kept.page(kept.token("line"))
    before = len(kept.control.fired())
    kept.control.set_toxics(embeddings=toxic)
    ends(kept, kept.submit(page))
    hits = [each["rule"] for each in kept.control.fired()[before:]]
    assert set(hits) == {f"embeddings {toxic.effect}"}
    assert toxic.times in (None, len(hits))


@pytest.mark.fault("F30")
def test_an_unavailable_database_is_503_and_waited_for(kept: Arena) -> None:
    first, second = (kept.submit(kept.page(kept.token("away"))) for _ in range(2))
    kept.control.set_toxics(postgres=Toxic("down"))
    url = kept.stack.site + kept.page(kept.token("away")).path

    def refused() -> httpx.Response | None:
        with kept.stack.http() as caller:
            answer = caller.post("/orchestrator/jobs", json={"url": url, "corpus_name": "faults"})
        return answer if answer.status_code == 503 else None

    answer = eventually(refused, "the service says that it is away")
    with kept.stack.http() as caller:
        answers = [answer, caller.get("/orchestrator/jobs"), caller.get(f"/orchestrator/jobs/{first.job_id}")]
    for each in answers:
        assert (each.status_code, each.headers["Retry-After"]) == (503, "5")
        assert each.json()["error"]["code"] == "database_unavailable"
    kept.control.set_toxics()
    for job in (first, second):
        ends(kept, job)


@pytest.mark.fault("F78")
def test_a_silent_database_is_503_in_time_and_waited_for(kept: Arena) -> None:
    job = kept.submit(kept.page(kept.token("silent")))
    kept.control.set_toxics(postgres=Toxic("blackhole"))
    url = kept.stack.site + kept.page(kept.token("silent")).path
    with kept.stack.http() as caller:
        # On the connection that is open, and on a new one.
        for _ in range(2):
            began = time.monotonic()
            answer = caller.post("/orchestrator/jobs", json={"url": url, "corpus_name": "faults"})
            assert time.monotonic() - began < 6
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "database_unavailable"
    kept.control.set_toxics()
    ends(kept, job)


@pytest.mark.fault("F76")
def test_chunking_that_cannot_report_for_many_sweeps_fails_no_job(kept: Arena) -> None:
    kept.control.arm([parse("ChunkingWorker/sqs.SendMessageBatch@CallbacksQueue:errorx1000")])
    jobs = [kept.submit(kept.page(kept.token("chunk"))) for _ in range(3)]
    eventually(lambda: set(kept.statuses(jobs).values()) == {"chunking"}, "their texts are split")
    for _ in range(6):
        kept.cloud.pass_time()
        kept.cloud.sweep()
    assert set(kept.statuses(jobs).values()) == {"chunking"}
    kept.control.arm()
    for job in jobs:
        ends(kept, job)


@pytest.mark.fault("F76")
def test_a_paused_chunking_stage_fails_no_job_and_continues_after_the_pause(kept: Arena) -> None:
    with kept.cloud.database() as database:
        database.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES ('chunking', 'test', 'me')")
        kept.cloud.sweep()
        jobs = [kept.submit(kept.page(kept.token("paused"))) for _ in range(3)]
        eventually(lambda: set(kept.statuses(jobs).values()) == {"chunking"}, "their texts are queued")
        for _ in range(6):
            kept.cloud.pass_time()
            kept.cloud.sweep()
        assert set(kept.statuses(jobs).values()) == {"chunking"}
        assert kept.cloud.depths()["ChunkQueue"] == len(jobs)
        database.execute("DELETE FROM pauses")
    kept.cloud.sweep()
    for job in jobs:
        ends(kept, job)


def test_connections_that_are_cut_again_and_again_lose_no_job(kept: Arena) -> None:
    jobs = []

    def cut(line: str, since: int) -> bool:
        return f"{line} reset" in {each["rule"] for each in kept.control.fired()[since:]}

    for number in range(5):
        jobs.append(kept.submit(kept.page(kept.token("cut"))))
        before = len(kept.control.fired())
        kept.control.set_toxics(postgres=Toxic("reset"), embeddings=Toxic("reset"))
        eventually(lambda since=before: cut("postgres", since), "connections to Postgres are cut")
        if number == 0:
            # Without Postgres no job gets as far as the model.
            kept.control.set_toxics(embeddings=Toxic("reset"))
            eventually(lambda since=before: cut("embeddings", since), "connections to the model are cut")
        kept.control.set_toxics()
    for job in jobs:
        ends(kept, job)
