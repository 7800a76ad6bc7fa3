"""Builds the Scraper: the only place that knows every adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

from indexmill.platform.blobs import BlobStore
from indexmill.platform.consumer.settling import SourceQueue
from indexmill.platform.queues import Queue
from indexmill.platform.security.urls import parse_allowed_hosts
from indexmill.platform.time.clock import Clock, SystemClock
from indexmill.scraper.answer import MAX_ANSWER_TEXT_BYTES
from indexmill.scraper.enqueue import Enqueue
from indexmill.scraper.ports import Fetcher, Isolation, RobotsCache
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import INLINE_TEXT_BYTES, ScrapeParts
from indexmill.scraper.settings import ScraperApiSettings, ScraperSettings, ScraperWorkerSettings
from indexmill.scraper.worker import ScrapeBatch

if TYPE_CHECKING:
    from indexmill.platform.aws.sqs_queue import SqsQueue


class Overrides(TypedDict, total=False):
    """Adapters that a test brings along; `queue` is the one that the function sends to."""

    queue: Queue
    source: SourceQueue
    blobs: BlobStore
    fetcher: Fetcher
    robots_cache: RobotsCache
    isolation: Isolation
    clock: Clock


@dataclass(frozen=True, slots=True)
class ScraperApi:
    """What the HTTP function needs: `execute_scrape` with `parts`, and `enqueue`."""

    parts: ScrapeParts
    enqueue: Enqueue
    timeout_s: float


def build_worker(settings: ScraperWorkerSettings, **overrides: Unpack[Overrides]) -> ScrapeBatch:
    """Return the batch use case of the scrape queue."""
    parts = _parts(settings, overrides, INLINE_TEXT_BYTES)
    queue = overrides.get("queue") or _queue(settings.callbacks_queue_url)
    source = overrides.get("source") or _queue(settings.scrape_queue_url)
    return ScrapeBatch(parts, queue, source, timeout_s=settings.scrape_timeout_s)


def build_api(settings: ScraperApiSettings, **overrides: Unpack[Overrides]) -> ScraperApi:
    """Return the use cases of the HTTP routes."""
    parts = _parts(settings, overrides, MAX_ANSWER_TEXT_BYTES)
    queue = overrides.get("queue") or _queue(settings.scrape_queue_url)
    enqueue = Enqueue(queue, allowed_hosts=parts.allowed_hosts)
    return ScraperApi(parts, enqueue, settings.scrape_timeout_s)


def _parts(settings: ScraperSettings, overrides: Overrides, inline_text_bytes: int) -> ScrapeParts:
    clock = overrides.get("clock") or SystemClock()
    fetcher = overrides.get("fetcher") or _fetcher(settings, clock)
    cache = overrides.get("robots_cache") or _robots_cache(settings, clock)
    return ScrapeParts(
        fetcher=fetcher,
        robots=Robots(fetcher, cache, clock, user_agent=settings.user_agent),
        blobs=overrides.get("blobs") or _blobs(settings.bucket_name),
        isolation=overrides.get("isolation") or _isolation(),
        clock=clock,
        allowed_hosts=parse_allowed_hosts(settings.allowed_private_hosts),
        inline_text_bytes=inline_text_bytes,
    )


def _fetcher(settings: ScraperSettings, clock: Clock) -> Fetcher:
    from indexmill.scraper.adapters.http_fetcher import FetchLimits, HttpFetcher

    return HttpFetcher(
        user_agent=settings.user_agent,
        allowed_hosts=parse_allowed_hosts(settings.allowed_private_hosts),
        limits=FetchLimits(settings.max_content_bytes, settings.connect_timeout_s, settings.read_timeout_s),
        clock=clock,
    )


def _robots_cache(settings: ScraperSettings, clock: Clock) -> RobotsCache:
    from indexmill.scraper.adapters.dynamodb_robots import DynamoDbRobots

    return DynamoDbRobots(settings.state_table, clock)


def _isolation() -> Isolation:
    from indexmill.scraper.adapters.process_isolation import ProcessIsolation

    return ProcessIsolation()


def _blobs(bucket: str) -> BlobStore:
    from indexmill.platform.aws.clients import client
    from indexmill.platform.aws.s3_blobs import S3Blobs

    # Blobs are put from several threads, and making a client is not safe there: it is made now.
    return S3Blobs(bucket, client("s3"))


def _queue(url: str) -> SqsQueue:
    from indexmill.platform.aws.sqs_queue import SqsQueue

    return SqsQueue(url)
