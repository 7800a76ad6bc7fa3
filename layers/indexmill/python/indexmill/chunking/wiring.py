"""Composition root of Chunking: the only place that builds its adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.chunking.ports import Tokenizer
from indexmill.chunking.settings import ChunkingApiSettings, ChunkingSettings, ChunkingWorkerSettings
from indexmill.chunking.worker import ChunkDocuments
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock, request_limit

if TYPE_CHECKING:
    from indexmill.chunking.api import ChunkingApi
    from indexmill.contracts.messages import ChunkTask
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.http.app import Handler

_LIMIT_S = 10.0


def build_api(settings: ChunkingApiSettings) -> Handler:
    """Build chunking/api."""
    from indexmill.chunking.api import routes
    from indexmill.platform.http.app import queue_pressure, serve

    observability = Observability("chunking", level=settings.log_level)
    limit_s = request_limit(_LIMIT_S, settings.integration_timeout_seconds)
    pressure = queue_pressure("chunking", settings.chunk_queue_url, settings, observability)
    router = routes(build_use_cases(settings), limit_s)
    return serve([router], settings, observability, pressure=pressure)


def build_use_cases(
    settings: ChunkingApiSettings,
    *,
    tokenizer: Tokenizer | None = None,
    blobs: BlobStore | None = None,
    queue: Queue | None = None,
) -> ChunkingApi:
    """Build what the routes call."""
    from indexmill.chunking.api import ChunkingApi
    from indexmill.chunking.enqueue import EnqueueChunk

    blobs = blobs or BlobStore(settings.bucket_name)
    enqueue = EnqueueChunk(queue or Queue(settings.chunk_queue_url), blobs)
    return ChunkingApi(ChunkDocuments(tokenizer or _tokenizer(settings), blobs), enqueue)


def build_worker(settings: ChunkingWorkerSettings) -> SqsBatch[ChunkTask]:
    """Build chunking/worker."""
    from indexmill.chunking.worker import ChunkBatch
    from indexmill.contracts.messages import ChunkTask
    from indexmill.platform.consumer.delivery_log import DeliveryLog
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.limits.store import AgeNotes, QueueAges

    clock = SystemClock()
    documents = ChunkDocuments(_tokenizer(settings), BlobStore(settings.bucket_name))
    return SqsBatch(
        ChunkTask,
        ChunkBatch(documents, Queue(settings.callbacks_queue_url), clock),
        source=Queue(settings.chunk_queue_url),
        dead=Queue(settings.chunk_dlq_url),
        delivery_log=DeliveryLog(settings.state_table, clock),
        ages=AgeNotes("chunking", QueueAges(settings.state_table, clock), clock),
        observability=Observability("chunking", level=settings.log_level),
    )


def _tokenizer(settings: ChunkingSettings) -> Tokenizer:
    """Load the tokenizer now, while a cold start has the CPU to itself."""
    from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer

    tokenizer = ModelTokenizer(settings.tokenizer_file)
    tokenizer.load()
    return tokenizer
