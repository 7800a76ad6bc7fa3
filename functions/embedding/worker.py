"""Consumer of the embed queue."""

from __future__ import annotations

from indexmill.contracts.messages import EmbedTask
from indexmill.embedding.settings import EmbeddingWorkerSettings
from indexmill.embedding.wiring import build_worker
from indexmill.platform.aws.dynamodb_delivery_log import DynamoDbReleases
from indexmill.platform.aws.sqs_queue import SqsQueue
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from indexmill.platform.time.clock import SystemClock

_settings = EmbeddingWorkerSettings.from_environment()
handler = SqsBatch(
    EmbedTask,
    build_worker(_settings),
    source=SqsQueue(_settings.embed_queue_url),
    dead=SqsQueue(_settings.embed_dlq_url),
    notes=DynamoDbReleases(_settings.state_table, SystemClock()),
    observability=Observability("embedding", level=_settings.log_level),
)
