"""Consumer of the scrape queue."""

from __future__ import annotations

from indexmill.contracts.messages import ScrapeTask
from indexmill.platform.aws.dynamodb_delivery_log import DynamoDbReleases
from indexmill.platform.aws.sqs_queue import SqsQueue
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from indexmill.platform.time.clock import SystemClock
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_worker

_settings = ScraperWorkerSettings.from_environment()
_source = SqsQueue(_settings.scrape_queue_url)
handler = SqsBatch(
    ScrapeTask,
    build_worker(_settings, source=_source),
    source=_source,
    dead=SqsQueue(_settings.scrape_dlq_url),
    notes=DynamoDbReleases(_settings.state_table, SystemClock()),
    observability=Observability("scraper", level=_settings.log_level),
)
