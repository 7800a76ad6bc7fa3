"""Getting messages out: what one of them suffers, the others do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.messages import ScrapeTask, read
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.platform.aws.sqs_queue import MESSAGE_BYTES
from indexmill.platform.meter import Meter
from tests.support.jobs import new_job, scraped, stored_job, submitted
from tests.support.metrics import emitted
from tests.support.sweeper import SweeperHarness
from tests.twins.clock import FrozenClock
from tests.twins.queues import InMemoryQueue


class Picky(InMemoryQueue):
    """Refuses each body that contains `bad`."""

    bad = "unsendable"

    def send(self, bodies: Sequence[str], groups: Sequence[str] = (), *, reason: str = "") -> list[int]:
        self.refuse = {at for at, body in enumerate(bodies) if self.bad in body}
        return super().send(bodies, groups)


def picky(p: SweeperHarness) -> Picky:
    p.scrape.__class__ = Picky
    assert isinstance(p.scrape, Picky)
    return p.scrape


def test_sends_are_on_receipts_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    p = SweeperHarness()
    job_id = p.submit()
    meter = Meter(FrozenClock())
    monkeypatch.setattr("indexmill.orchestrator.outbox.relay.METER", meter)
    meter.begin(["x" * 600_000])
    before = meter.due()["sqs_units"]
    message_id = read(ScrapeTask, p.scrape.bodies[0]).message_id
    # 120,000 bytes in 40,000 characters: two units of 64 KiB.
    p.relay.send([OutboxRow(message_id, job_id, 1, "scraping", "\u66f8" * 40_000)])
    assert before - meter.due()["sqs_units"] == 2


@pytest.mark.fault("F25")
def test_only_what_a_queue_refused_is_sent_again() -> None:
    p = SweeperHarness()
    picky(p)
    jobs = [p.submit(f"https://example.com/{name}") for name in ("a", "unsendable", "b")]
    assert [read(ScrapeTask, body).job_id for body in p.scrape.bodies] == [jobs[0], jobs[2]]
    picky(p).bad = "nothing"
    p.clock.tick(11)
    assert p.sweep()["leftovers"] == 1
    assert len(p.scrape.bodies) == 3
    p.clock.tick(40)
    assert p.sweep()["leftovers"] == 0


@pytest.mark.fault("F27")
def test_a_message_that_is_never_taken_is_set_aside_and_later_ones_flow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = SweeperHarness()
    picky(p)
    for number in range(120):
        p.submit(f"https://example.com/unsendable/{number}")
    capsys.readouterr()
    assert [tick["parked"] for tick in p.tick(10)][-1] == 120
    assert emitted(capsys, "outbox_parked")[-1] == (120.0, {})
    good = p.submit("https://example.com/good")
    assert read(ScrapeTask, p.scrape.bodies[-1]).job_id == good


def test_a_message_that_is_never_taken_fails_its_job_in_the_end() -> None:
    p = SweeperHarness()
    picky(p)
    job_id = p.submit("https://example.com/unsendable")
    for _ in range(60):
        p.tick()
    assert p.status(job_id) == "failed"
    job = stored_job(p.store, "0123456789abcdef", job_id)
    assert job is not None
    assert job.error is not None
    assert job.error.code == "stuck_timeout"
    assert sum(row["rescues"] for row in p.jobs.outbox.values()) == 3


@pytest.mark.fault("F26")
def test_a_message_that_is_too_large_fails_its_job_at_once() -> None:
    p = SweeperHarness()
    job_id, other = p.submit(), p.submit()
    p.deliver(scraped(job_id, text="x" * (MESSAGE_BYTES + 1)), scraped(other))
    job = stored_job(p.store, "0123456789abcdef", job_id)
    assert job is not None
    assert job.error is not None
    assert (job.failed_stage, job.error.code) == ("chunking", "message_too_large")
    assert p.status(other) == "embedding"
    assert len(p.embed.bodies) == 1
    sent = {row["job_id"]: row["sent_at"] for row in p.jobs.outbox.values() if row["stage"] == "embedding"}
    assert other in sent
    assert all(row["sent_at"] for row in p.jobs.outbox.values())


@pytest.mark.fault("F26")
def test_a_message_that_is_too_large_while_postgres_is_unavailable_is_left_to_the_sweeper() -> None:
    p = SweeperHarness()
    job = new_job()
    huge = OutboxRow(job.first.id, job.job_id, 1, "scraping", "x" * (MESSAGE_BYTES + 1))
    (row,) = submitted(p.store, type(job)(job.job_id, job.target, job.submitted_url, None, huge))[1]
    transaction = p.jobs.transaction

    def unavailable(*_: object) -> None:
        raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "away")

    p.jobs.transaction = unavailable  # type: ignore[method-assign, assignment]
    p.relay.send([row])
    p.jobs.transaction = transaction  # type: ignore[method-assign]
    assert (p.scrape.bodies, p.status(job.job_id)) == ([], "scraping")
    p.clock.tick(31)
    p.sweep()
    assert p.status(job.job_id) == "failed"


@pytest.mark.fault("F3", "F4")
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outage_of_the_store_while_sending_costs_a_copy_at_most(when: str) -> None:
    p = SweeperHarness()
    p.scrape.unavailable = when == "before"
    real = p.jobs.mark_sent, p.jobs.mark_failed

    def unavailable(*_: object, **__: object) -> None:
        raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "away")

    p.jobs.mark_sent = p.jobs.mark_failed = unavailable  # type: ignore[method-assign, assignment]
    job_id = p.submit()
    p.jobs.mark_sent, p.jobs.mark_failed = real  # type: ignore[method-assign]
    p.scrape.unavailable = False
    p.clock.tick(31)
    p.sweep()
    sent = [read(ScrapeTask, body) for body in p.scrape.bodies]
    assert len(sent) == (1 if when == "before" else 2)
    assert {(each.job_id, each.message_id) for each in sent} == {(job_id, sent[0].message_id)}


def test_every_message_is_in_its_callers_group() -> None:
    p = SweeperHarness()
    job_id = p.submit(ctx=CallerContext("ann"))
    p.submit(ctx=CallerContext("bob"))
    p.deliver(scraped(job_id))
    assert p.scrape.groups == ["ann", "bob"]
    assert p.embed.groups == ["ann"]
