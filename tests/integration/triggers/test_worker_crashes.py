"""The Scraper's worker behind a real queue, in real processes that pages crash."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from indexmill.contracts.messages import ScrapeTask, StageResult, read, write
from local.backends.ministack import MiniStack
from local.compute.host import HostOptions, LambdaHost
from local.template.spec import FunctionSpec
from local.triggers.sqs import SqsEventSource
from tests.integration.triggers.harness import ACCOUNT, REGION, Queue, until
from tests.support.repository import ROOT
from tests.support.state_table import dynamodb, new_table

Start = Callable[..., Awaitable[SqsEventSource]]
MakeQueue = Callable[..., Queue]
VISIBILITY_S = 3

# The worker as it is wired, but for the internet: pages come from here, some of them crash it.
HANDLER = """
import asyncio
import os
import resource
import time

from indexmill.contracts.messages import ScrapeTask
from indexmill.platform.consumer.delivery_log import DeliveryLog
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.time import SystemClock
from indexmill.platform.observability import Observability
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.scraper.ports import Fetched
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_batch
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryRobotsCache
from indexmill.scraper.adapters.answer import status_failure


class Source(Queue):
    # How many pages of a batch were begun, how many of them stall, and how many are out of the queue.
    begun = stalling = gone = 0

    def delete(self, receipts):
        super().delete(receipts)
        self.gone += len(receipts)


class Pages:
    async def fetch(self, url, **options):
        page = url.rpartition("/")[2]
        if page == "robots.txt":
            return Fetched(url, 200, "text/plain", None, b"")
        source.begun += 1
        with open("seen.txt", "a") as seen:
            seen.write(page + "\\n")
        if page.startswith("kill"):
            await asyncio.sleep(0.05)
            os._exit(1)
        if page.startswith("hang"):
            while True:
                pass
        if page.startswith("leak") and not os.path.exists("leaked"):
            open("leaked", "w").close()
            lowest_free = os.dup(0)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, lowest_free))
        if page.startswith("busy") and not os.path.exists(page):
            open(page, "w").close()
            raise status_failure(503, retry_after=2)
        if page.startswith("stall") and not os.path.exists(page):
            open(page, "w").close()
            source.stalling += 1
            while source.gone < source.begun - source.stalling:
                await asyncio.sleep(0.01)
            time.sleep(60)
        if page.startswith("slow"):
            await asyncio.sleep(0.8)
        return Fetched(url, 200, "text/plain", None, b"words")

    async def close(self):
        pass


settings = ScraperWorkerSettings.from_environment()
source = Source(settings.scrape_queue_url)
batch = SqsBatch(
    ScrapeTask,
    build_batch(settings, source=source, fetcher=Pages(), blobs=InMemoryBlobs(),
                 robots_cache=InMemoryRobotsCache()),
    source=source,
    dead=Queue(settings.scrape_dlq_url),
    delivery_log=DeliveryLog(settings.state_table, SystemClock()),
    observability=Observability("scraper", level="WARNING"),
)


def handler(event, context):
    source.begun = source.stalling = source.gone = 0
    return batch(event, context)
"""


class Worker:
    """One function with its queues."""

    def __init__(self, host: LambdaHost, folder: Path, tasks: Queue, dead: Queue, callbacks: Queue) -> None:
        self.host, self.folder = host, folder
        self.tasks, self.dead, self.callbacks = tasks, dead, callbacks
        self.results: dict[str, StageResult] = {}

    async def submit(self, *pages: str) -> None:
        urls = [f"https://example.com/{page}" for page in pages]
        tasks = [
            ScrapeTask(message_id=f"m-{page}", job_id=page, url=url)
            for page, url in zip(pages, urls, strict=True)
        ]
        await self.tasks.send(*map(write, tasks))

    async def ended(self) -> dict[str, StageResult]:
        """Return the results so far with which a stage ended, by job; a failed try may be reported before."""
        for message in await self.callbacks.take():
            result = read(StageResult, message["Body"])
            assert result.job_id is not None
            if result.status != "retrying":
                self.results[result.job_id] = result
        return self.results

    async def all_ended(self, count: int) -> bool:
        return len(await self.ended()) == count

    def fetches(self) -> Counter[str]:
        """Return how often each page was fetched."""
        file = self.folder / "seen.txt"
        return Counter(file.read_text().split()) if file.exists() else Counter()


@pytest_asyncio.fixture
async def worker(
    request: pytest.FixtureRequest, tmp_path: Path, ministack: MiniStack, queue: MakeQueue
) -> AsyncIterator[Worker]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "app.py").write_text(HANDLER)
    dead = queue()
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": "100"})
    tasks, callbacks = queue(visibility_s=VISIBILITY_S, RedrivePolicy=policy), queue(visibility_s=300)
    environment: dict[str, Any] = {
        "SCRAPE_QUEUE_URL": tasks.url,
        "SCRAPE_DLQ_URL": dead.url,
        "CALLBACKS_QUEUE_URL": callbacks.url,
        "BUCKET_NAME": "none",
        "DOMAIN_RATES": "*=unlimited",
        "STATE_TABLE": new_table(dynamodb(ministack)),
        "AWS_ENDPOINT_URL": ministack.endpoint,
    }
    spec = FunctionSpec(
        "Function", "function", "app.handler", code, (ROOT / "layers/indexmill",), 3, 512, environment,
        reserved_concurrency=getattr(request, "param", 1),
    )  # fmt: skip
    options = HostOptions(hot_reload=False)
    host = LambdaHost([spec], region=REGION, log_dir=tmp_path / "logs", account_id=ACCOUNT, options=options)
    await host.start()
    yield Worker(host, code, tasks, dead, callbacks)
    await host.stop()


@pytest.mark.fault("F8", "F22")
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("deadly", "cause"), [("kill", "worker_crashed"), ("hang", "timed_out")])
async def test_a_page_that_ends_its_process_fails_alone(
    worker: Worker, start_source: Start, deadly: str, cause: str
) -> None:
    good = [f"page{at}" for at in range(9)]
    await worker.submit(*good[:4], deadly, *good[4:])
    await start_source(worker.tasks, worker.host, report_batch_item_failures=True)
    await until(lambda: worker.all_ended(10), limit_s=45)
    results = await worker.ended()
    assert {job: result.status for job, result in results.items()} == {
        **dict.fromkeys(good, "success"),
        deadly: "failed",
    }
    failed = results[deadly].failure
    assert failed is not None
    assert (failed.code, failed.cause) == ("poison_message", cause)
    fetches = worker.fetches()
    assert fetches[deadly] == 3
    assert max(fetches[page] for page in good) <= 2, "at most one execution more than needed"
    await until(worker.tasks.is_empty)
    assert await worker.dead.is_empty()


@pytest.mark.fault("F8")
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("worker", [4], indirect=True)
async def test_a_time_out_in_the_middle_of_a_batch_repeats_hardly_anything(
    worker: Worker, start_source: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """One page in twenty takes longer than the function's timeout; the others of its batch are finished by
    then.
    """
    pages = [f"stall{at}" if at % 20 == 7 else f"page{at}" for at in range(100)]
    await worker.submit(*pages)
    source = await start_source(
        worker.tasks, worker.host, report_batch_item_failures=True, maximum_concurrency=4
    )
    await until(lambda: worker.all_ended(100), limit_s=90)
    assert {result.status for result in (await worker.ended()).values()} == {"success"}
    timeouts, executions = worker.host.stats()["function"].errors, sum(worker.fetches().values())
    with capsys.disabled():
        print(  # noqa: T201 - the figure
            f"\n  100 messages, {timeouts} invocations whose time was over: {executions} executions,"
            f" {executions / 100:.2f} for each; {source.stats().messages} receives"
        )
    assert timeouts >= 3, "else nothing was put to the test"
    assert executions <= 110
    await until(worker.tasks.is_empty)
    assert await worker.dead.is_empty()


@pytest.mark.fault("F75")
@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_a_function_with_too_little_concurrency_loses_no_message(
    worker: Worker, start_source: Start
) -> None:
    """Its event source delivers four batches at a time, the function runs one: the others are throttled."""
    pages = [f"slow{at}" for at in range(40)]
    await worker.submit(*pages)
    source = await start_source(
        worker.tasks, worker.host, report_batch_item_failures=True, maximum_concurrency=4
    )
    await until(lambda: worker.all_ended(40), limit_s=45)
    results = await worker.ended()
    assert {result.status for result in results.values()} == {"success"}
    assert source.stats().throttles > 0
    assert source.stats().messages > 40, "receives were burnt"
    assert set(worker.fetches().values()) == {1}
    await until(worker.tasks.is_empty)
    assert await worker.dead.is_empty()


@pytest.mark.fault("F75")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("worker", [2], indirect=True)
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.long)])
async def test_hundreds_of_messages_get_through_two_workers_while_every_tenth_waits(
    worker: Worker, start_source: Start, count: int
) -> None:
    pages = [f"busy{at}" if at % 10 == 0 else f"page{at}" for at in range(count)]
    await worker.submit(*pages)
    source = await start_source(
        worker.tasks, worker.host, report_batch_item_failures=True, maximum_concurrency=2
    )
    await until(lambda: worker.all_ended(count), limit_s=240)
    results = await worker.ended()
    assert {result.status for result in results.values()} == {"success"}
    assert max(worker.fetches().values()) == 2
    assert sum(worker.fetches().values()) == count + count // 10, (
        "only those that waited were fetched again, once"
    )
    assert source.stats().throttles == 0
    await until(worker.tasks.is_empty)
    assert await worker.dead.is_empty()


@pytest.mark.slow
@pytest.mark.fault("F67")
async def test_a_process_that_can_open_nothing_more_ends_and_no_page_does(
    worker: Worker, start_source: Start
) -> None:
    """Its results cannot be sent; kept warm, it would get the same messages again and again."""
    pages = [*(f"page{at}" for at in range(4)), "leak"]
    await worker.submit(*pages)
    await start_source(worker.tasks, worker.host, report_batch_item_failures=True)
    await until(lambda: worker.all_ended(5), limit_s=30)
    results = await worker.ended()
    assert {result.status for result in results.values()} == {"success"}
    assert max(worker.fetches().values()) == 2
    assert worker.host.stats()["function"].errors == 1
    await until(worker.tasks.is_empty)
