"""Consumer of the embed queue."""

from __future__ import annotations

from indexmill.contracts.messages import EmbedTask
from indexmill.embedding.settings import EmbeddingWorkerSettings
from indexmill.embedding.wiring import build_worker
from indexmill.platform.adapters.dynamodb_releases import DynamoDbReleases
from indexmill.platform.adapters.sqs_queue import SqsQueue
from indexmill.platform.clock import SystemClock
from indexmill.platform.observability import Observability
from indexmill.platform.sqs_batch import SqsBatch

_settings = EmbeddingWorkerSettings.from_environment()
handler = SqsBatch(
    EmbedTask,
    build_worker(_settings),
    source=SqsQueue(_settings.embed_queue_url),
    dead=SqsQueue(_settings.embed_dlq_url),
    notes=DynamoDbReleases(_settings.state_table, SystemClock()),
    observability=Observability("embedding", level=_settings.log_level),
)
