"""All that is not durable is lost at once, again and again: messages in queues, the table of passing state.

What is durable (Postgres and the bucket) is enough to bring every job to its end.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from indexmill.orchestrator.store.rows import MOST_RESCUES
from indexmill.platform.time import SystemClock
from local.faults.cloud import CALLBACKS, WORK_QUEUES
from local.faults.invariants.violation import Accepted
from local.faults.rules import Rule
from tests.faults.arena import Arena
from tests.support.stack import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]

CORPUS: Final = "purge"
OPEN_BREAKER: Final = "breaker#embedding"
SLOWLY: Final = [
    Rule("ScraperWorker/http.get@page", "delay", times=10**6, seconds=0.4, name="slow-pages"),
    Rule("EmbeddingWorker/http.post@embeddings", "delay", times=10**6, seconds=0.4, name="slow-model"),
]
"""So that there is always something in flight, however fast the machine is."""

PROGRESS: Final = """
SELECT count(*) FILTER (WHERE jobs.status NOT IN ('done', 'failed')),
       coalesce(max(o.rescues), 0)
FROM jobs LEFT JOIN outbox AS o ON o.job_id = jobs.id AND o.stage = jobs.status AND o.attempt = jobs.attempt
WHERE jobs.id = ANY(%s)
"""
SENT_AGAIN: Final = "SELECT coalesce(sum(rescues), 0), max(rescues) FROM outbox WHERE job_id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run's jobs."""

    open_jobs: int
    rescues: int
    """How often the unluckiest message that a job waits for was sent again."""


@dataclass
class Run:
    """Jobs on a cloud that loses its memory."""

    arena: Arena
    jobs: list[Accepted] = field(default_factory=list)
    moments: int = 0
    """At which something was lost."""
    messages: int = 0
    items: int = 0

    def progress(self) -> Progress:
        with self.arena.cloud.database() as database:
            row = database.execute(PROGRESS, ([job.job_id for job in self.jobs],)).fetchone()
        assert row is not None
        return Progress(*row)

    def sent_again(self) -> tuple[int, int]:
        """Return how many messages were sent again, and how often the unluckiest of them."""
        with self.arena.cloud.database() as database:
            row = database.execute(SENT_AGAIN, ([job.job_id for job in self.jobs],)).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def pass_minutes(self) -> Progress:
        """Let the sweeper's minutes pass at once."""
        self.arena.cloud.pass_time()
        self.arena.cloud.sweep()
        return self.progress()

    def submit(self, count: int) -> None:
        """Submit so many pages at once."""
        pages = [self.arena.page(self.arena.token("purge")) for _ in range(count)]
        urls = [self.arena.stack.site + page.path for page in pages]
        ids = self.arena.cloud.client.submit(urls, CORPUS).job_ids or []
        named = zip(ids, urls, pages, strict=True)
        jobs = [Accepted(job_id, url, CORPUS, page.sentence) for job_id, url, page in named]
        self.jobs.extend(jobs)
        self.arena.accepted.extend(jobs)

    def lose_everything(self) -> None:
        """Purge the queues, in flight or not, and delete every item of the table."""
        cloud, table = self.arena.cloud, self.arena.stack.resources["StateTable"]
        depths = cloud.depths()
        lost = 0
        for queue in (*WORK_QUEUES.values(), CALLBACKS):
            lost += depths[queue]
            cloud.sqs.purge_queue(QueueUrl=cloud.queues[queue])
        for item in cloud.dynamodb.scan(TableName=table)["Items"]:
            cloud.dynamodb.delete_item(TableName=table, Key={"pk": item["pk"]})
            self.items += 1
        self.messages += lost
        self.moments += lost > 0

    def waits_its_turn(self, ticks: int) -> None:
        """Return after so many ticks, once a message that is lost now would be sent again.

        One that was sent again MOST_RESCUES times would not: its job would be given up.
        """
        for _ in range(ticks):
            self.pass_minutes()
        eventually(lambda: self.pass_minutes().rescues < MOST_RESCUES, "what was sent again is taken", 90)

    def open_breaker(self) -> None:
        """Make the embedding endpoint ill until its breaker is open, then well again."""
        self.arena.stack.set_fault_mode("embeddings", mode="503")
        try:
            eventually(lambda: self.pass_minutes() and self._is_open(), "the breaker is open", 90)
        finally:
            self.arena.stack.set_fault_mode("embeddings", mode="ok")

    def _is_open(self) -> bool:
        table = self.arena.stack.resources["StateTable"]
        found = self.arena.cloud.dynamodb.get_item(TableName=table, Key={"pk": {"S": OPEN_BREAKER}})
        item: dict[str, Any] = dict(found.get("Item", {}))
        return bool(item) and float(item["open_until"]["N"]) > SystemClock().now().timestamp()

    def end(self) -> None:
        eventually(lambda: self.pass_minutes().open_jobs == 0, "every job is at its end", 120)


@pytest.mark.parametrize(
    ("jobs", "moments", "breaker"),
    [
        pytest.param(12, 6, False, id="small"),
        pytest.param(50, 24, True, id="full", marks=pytest.mark.long),
    ],
)
def test_losing_all_that_is_not_durable_loses_no_job(
    kept: Arena, jobs: int, moments: int, breaker: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = random.Random(43)
    with_breaker = choice.randrange(moments // 3, 2 * moments // 3) if breaker else None
    began = time.monotonic()
    kept.control.arm(SLOWLY)
    run = Run(kept)
    run.submit(jobs - moments)
    while run.moments < moments:
        run.waits_its_turn(choice.randint(0, 2))
        if run.moments == with_breaker:
            run.open_breaker()
            with_breaker = None
        if len(run.jobs) < jobs - moments + run.moments + 1:
            run.submit(1)
        run.lose_everything()
    run.end()
    took = time.monotonic() - began
    again, most = run.sent_again()
    with capsys.disabled():
        print(
            f"\n  {jobs} jobs, {run.moments} moments: {run.messages} messages and {run.items} items deleted,"
            f" {again} messages sent again, one of them {most} times; {took:.0f} s"
        )
    assert len(run.jobs) == jobs
    assert set(kept.statuses(run.jobs).values()) == {"done"}
