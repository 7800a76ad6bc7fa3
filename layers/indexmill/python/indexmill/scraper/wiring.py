"""Composition root of the Scraper: the only place that builds its adapters."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from indexmill.contracts.errors import ErrorCode
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.observability import Observability
from indexmill.platform.security.urls import parse_allowed_hosts
from indexmill.platform.time import Clock, SystemClock, request_limit
from indexmill.scraper.ports import Fetcher, Isolation, Renderer
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import INLINE_TEXT_BYTES, ScrapeParts
from indexmill.scraper.settings import ScraperApiSettings, ScraperSettings, ScraperWorkerSettings
from indexmill.scraper.token_bucket import HostStates, RobotsCache

if TYPE_CHECKING:
    from indexmill.contracts.messages import ScrapeTask
    from indexmill.platform.aws.sqs_queue import Queue
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.http.app import Handler
    from indexmill.scraper.api import ScraperApi
    from indexmill.scraper.worker import ScrapeBatch


class Overrides(TypedDict, total=False):
    """Adapters that a test brings along; `queue` is the one that the function sends to."""

    queue: Queue
    source: Queue
    blobs: BlobStore
    fetcher: Fetcher
    robots_cache: RobotsCache
    isolation: Isolation
    renderer: Renderer
    clock: Clock
    host_states: HostStates


def build_api(settings: ScraperApiSettings) -> Handler:
    """Build scraper/api."""
    from indexmill.platform.http.app import queue_pressure, serve
    from indexmill.scraper.api import routes

    observability = Observability("scraper", level=settings.log_level)
    limit_s = request_limit(settings.scrape_timeout_s, settings.integration_timeout_seconds)
    pressure = queue_pressure("scraping", settings.scrape_queue_url, settings, observability)
    router = routes(build_use_cases(settings), limit_s)
    return serve([router], settings, observability, pressure=pressure)


def build_use_cases(settings: ScraperApiSettings, **overrides: Unpack[Overrides]) -> ScraperApi:
    """Build what the routes call."""
    from indexmill.scraper.api import MAX_ANSWER_TEXT_BYTES, ScraperApi
    from indexmill.scraper.enqueue import Enqueue

    parts = _parts(settings, overrides, MAX_ANSWER_TEXT_BYTES)
    queue = overrides.get("queue") or _queue(settings.scrape_queue_url)
    return ScraperApi(parts, Enqueue(queue, allowed_hosts=parts.allowed_hosts))


def build_worker(settings: ScraperWorkerSettings) -> SqsBatch[ScrapeTask]:
    """Build scraper/worker."""
    from indexmill.contracts.messages import ScrapeTask
    from indexmill.platform.consumer.delivery_log import DeliveryLog
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.limits.store import AgeNotes, QueueAges

    source, clock = _queue(settings.scrape_queue_url), SystemClock()
    return SqsBatch(
        ScrapeTask,
        build_batch(settings, source=source),
        source=source,
        dead=_queue(settings.scrape_dlq_url),
        delivery_log=DeliveryLog(settings.state_table, clock),
        ages=AgeNotes("scraping", QueueAges(settings.state_table, clock), clock),
        observability=Observability("scraper", level=settings.log_level),
    )


def build_batch(settings: ScraperWorkerSettings, **overrides: Unpack[Overrides]) -> ScrapeBatch:
    """Build the worker's batch use case."""
    from indexmill.platform.progress import Cancels
    from indexmill.scraper.worker import ScrapeBatch

    parts = replace(_parts(settings, overrides, INLINE_TEXT_BYTES), known_for=settings.known_for)
    queue = overrides.get("queue") or _queue(settings.callbacks_queue_url)
    source = overrides.get("source") or _queue(settings.scrape_queue_url)
    cancels = Cancels(settings.state_table, parts.clock)
    return ScrapeBatch(parts, queue, source, timeout_s=settings.scrape_timeout_s, cancels=cancels)


def _parts(settings: ScraperSettings, overrides: Overrides, inline_text_bytes: int) -> ScrapeParts:
    clock = overrides.get("clock") or SystemClock()
    fetcher = overrides.get("fetcher") or _fetcher(settings, clock)
    cache = overrides.get("robots_cache") or RobotsCache(settings.state_table, clock)
    return ScrapeParts(
        fetcher=fetcher,
        robots=Robots(
            fetcher,
            cache,
            clock,
            user_agent=settings.user_agent,
            max_delay_s=settings.max_crawl_delay_s,
        ),
        blobs=overrides.get("blobs") or _blobs(settings.bucket_name),
        isolation=overrides.get("isolation") or _isolation(),
        renderer=overrides.get("renderer") or _renderer(settings, clock),
        clock=clock,
        rates=_rate_limiter(settings, clock, overrides.get("host_states")),
        allowed_hosts=parse_allowed_hosts(settings.allowed_private_hosts),
        inline_text_bytes=inline_text_bytes,
        max_content_bytes=settings.max_content_bytes,
    )


def _fetcher(settings: ScraperSettings, clock: Clock) -> Fetcher:
    from indexmill.scraper.adapters.http_fetcher import FetchLimits, HttpFetcher

    return HttpFetcher(
        user_agent=settings.user_agent,
        allowed_hosts=parse_allowed_hosts(settings.allowed_private_hosts),
        limits=FetchLimits(settings.max_content_bytes, settings.connect_timeout_s, settings.read_timeout_s),
        clock=clock,
    )


def _renderer(settings: ScraperSettings, clock: Clock) -> Renderer | None:
    if not (settings.renderer_url or settings.renderer_url_secret_arn):
        return None
    from indexmill.platform.aws.secrets import Secret
    from indexmill.scraper.adapters.chromium_renderer import ChromiumRenderer, RenderLimits

    return ChromiumRenderer(
        Secret(
            settings.renderer_url,
            settings.renderer_url_secret_arn,
            unavailable=ErrorCode.RENDERER_UNAVAILABLE,
        ),
        user_agent=settings.user_agent,
        allowed_hosts=parse_allowed_hosts(settings.allowed_private_hosts),
        clock=clock,
        limits=RenderLimits(document_bytes=settings.max_content_bytes),
    )


def _rate_limiter(settings: ScraperSettings, clock: Clock, states: HostStates | None) -> RateLimiter:
    from indexmill.platform.aws.state_table import StoreClock

    corrected = StoreClock(clock)
    states = states or HostStates(settings.state_table, corrected)
    return RateLimiter(settings.domain_rates, states, corrected)


def _isolation() -> Isolation:
    from indexmill.scraper.adapters.process_isolation import ProcessIsolation

    return ProcessIsolation.within(int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024")))


def _blobs(bucket: str) -> BlobStore:
    from indexmill.platform.aws.clients import client
    from indexmill.platform.aws.s3_blobs import BlobStore

    # Every page needs it: made during the cold start, which has more CPU than the first invocation.
    return BlobStore(bucket, client("s3"))


def _queue(url: str) -> Queue:
    from indexmill.platform.aws.sqs_queue import Queue

    return Queue(url)
