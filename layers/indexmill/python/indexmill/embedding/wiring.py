"""Composition root of Embedding. Connections are opened on first use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from indexmill.embedding.ports import ChunkCounts, Embedder, Reranker, Space, VectorCache, VectorIndex
from indexmill.embedding.settings import (
    EmbeddingReadApiSettings,
    EmbeddingSettings,
    EmbeddingWorkerSettings,
    EmbeddingWriteApiSettings,
)
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.address import address_of
from indexmill.platform.postgres.database import ANSWER_S, Database
from indexmill.platform.progress import ProgressBoard
from indexmill.platform.security.urls import canonical_url, parse_allowed_hosts
from indexmill.platform.time import Clock, SystemClock, request_limit

if TYPE_CHECKING:
    from indexmill.contracts.messages import EmbedTask
    from indexmill.embedding.adapters.openai_embedder import OpenAIEmbedder
    from indexmill.embedding.api import WriteApi
    from indexmill.embedding.search import SearchCorpus
    from indexmill.embedding.targets import Generations, JobTargets
    from indexmill.embedding.worker import EmbedBatch
    from indexmill.platform.aws.sqs_queue import Queue
    from indexmill.platform.breakers import BreakerStates
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.http.app import Handler

_LIMIT_S: Final = 60.0
"""The longest synchronous request."""
_REQUEST_S: Final = _LIMIT_S + 1
"""What the model may take for one: more, so that the answer is the one for a request that takes too long."""
_TASK_S: Final = 30.0
"""What the model may take for one request of the worker."""


def build_write_api(settings: EmbeddingWriteApiSettings) -> Handler:
    """Build embedding/write_api."""
    from indexmill.embedding.adapters.pgvector.corpora import PostgresCorpora
    from indexmill.embedding.api import corpus_action_routes, write_routes
    from indexmill.embedding.corpora import ChangeCorpora
    from indexmill.platform.http.app import queue_pressure, serve

    observability = Observability("embedding", level=settings.log_level)
    limit_s = request_limit(_LIMIT_S, settings.integration_timeout_seconds)
    database = _database(settings, settings.database_answer_seconds)
    change = ChangeCorpora(PostgresCorpora(database), settings.corpus_isolation)
    routers = [
        write_routes(build_write_use_cases(settings, database=database), limit_s),
        corpus_action_routes(change),
    ]
    pressure = queue_pressure("embedding", settings.embed_queue_url, settings, observability)
    return serve(routers, settings, observability, pressure=pressure)


def build_write_use_cases(  # noqa: PLR0913 - everything around it
    settings: EmbeddingWriteApiSettings,
    *,
    index: VectorIndex | None = None,
    embedder: Embedder | None = None,
    blobs: BlobStore | None = None,
    queue: Queue | None = None,
    generations: Generations | None = None,
    jobs: JobTargets | None = None,
    counts: ChunkCounts | None = None,
    breakers: BreakerStates | None = None,
    database: Database | None = None,
) -> WriteApi:
    """Build what the write routes call."""
    from indexmill.embedding.adapters.pgvector.index import (
        PostgresChunkCounts,
        PostgresGenerations,
        PostgresJobTargets,
    )
    from indexmill.embedding.api import WriteApi
    from indexmill.embedding.embed_texts import EmbedTexts
    from indexmill.embedding.enqueue import EnqueueEmbed
    from indexmill.embedding.targets import ChunkQuota

    canonical = partial(canonical_url, allowed_hosts=parse_allowed_hosts(settings.allowed_private_hosts))
    database = database or _database(settings, settings.database_answer_seconds)
    numbers = generations or PostgresGenerations(database)
    quota = ChunkQuota(
        quotas=settings.quotas,
        counts=counts or PostgresChunkCounts(database),
        clock=SystemClock(),
        observability=Observability("embedding", level=settings.log_level),
    )
    clock = SystemClock()
    states = breakers or _breakers(settings.state_table, clock, caller_waits=True)
    embed = EmbedTexts(
        embedder=_for_callers(embedder, settings, states, clock),
        index=index or _index(database),
        generations=numbers,
        canonical=canonical,
        quota=quota,
        isolation=settings.corpus_isolation,
    )
    enqueue = EnqueueEmbed(
        queue=queue or _queue(settings.embed_queue_url),
        blobs=blobs or _blobs(settings.bucket_name),
        generations=numbers,
        jobs=jobs or PostgresJobTargets(database),
        canonical=canonical,
        quota=quota,
        isolation=settings.corpus_isolation,
    )
    return WriteApi(embed, enqueue)


def build_read_api(settings: EmbeddingReadApiSettings) -> Handler:
    """Build embedding/read_api."""
    from indexmill.embedding.adapters.pgvector.catalogue import PostgresCatalogue
    from indexmill.embedding.adapters.pgvector.corpora import PostgresCorpora
    from indexmill.embedding.api import corpora_routes, document_routes, read_routes
    from indexmill.embedding.browse import BrowseCorpus
    from indexmill.embedding.corpora import ReadCorpora
    from indexmill.embedding.verify import VerifyCorpus
    from indexmill.platform.http.app import serve

    observability = Observability("embedding", level=settings.log_level)
    limit_s = request_limit(_LIMIT_S, settings.integration_timeout_seconds)
    database = _database(settings, settings.database_answer_seconds)
    search = build_search(settings, index=_index(database), observability=observability)
    rows = PostgresCorpora(database)
    corpora = ReadCorpora(rows, settings.corpus_isolation)
    verify = VerifyCorpus(rows, rows, SystemClock(), settings.corpus_isolation, limit_s / 2)
    browse = BrowseCorpus(PostgresCatalogue(database), settings.corpus_isolation)
    routers = [
        read_routes(search, observability, limit_s),
        corpora_routes(corpora, verify),
        document_routes(browse, observability),
    ]
    return serve(routers, settings, observability)


def build_search(
    settings: EmbeddingReadApiSettings,
    *,
    index: VectorIndex | None = None,
    embedder: Embedder | None = None,
    breakers: BreakerStates | None = None,
    observability: Observability | None = None,
    clock: Clock | None = None,
) -> SearchCorpus:
    """Build what the search route calls."""
    from indexmill.embedding.search import SearchCorpus

    clock = clock or SystemClock()
    index = index or _index(_database(settings, settings.database_answer_seconds))
    states = breakers or _breakers(settings.state_table, clock, caller_waits=True)
    guarded = _for_callers(embedder, settings, states, clock)
    observability = observability or Observability("embedding", level=settings.log_level)
    return SearchCorpus(
        index,
        guarded,
        clock,
        settings.corpus_isolation,
        observability,
        vector_weight=settings.embedding_vector_weight,
        reranker=_reranker(settings),
        rerank_s=settings.rerank_seconds,
    )


def build_worker(settings: EmbeddingWorkerSettings) -> SqsBatch[EmbedTask]:
    """Build embedding/worker."""
    from indexmill.contracts.messages import EmbedTask
    from indexmill.platform.consumer.delivery_log import DeliveryLog
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.limits.store import AgeNotes, QueueAges

    clock = SystemClock()
    return SqsBatch(
        EmbedTask,
        build_batch(settings),
        source=_queue(settings.embed_queue_url),
        dead=_queue(settings.embed_dlq_url),
        delivery_log=DeliveryLog(settings.state_table, clock),
        ages=AgeNotes("embedding", QueueAges(settings.state_table, clock), clock),
        observability=Observability("embedding", level=settings.log_level),
    )


def build_batch(  # noqa: PLR0913 - everything around it
    settings: EmbeddingWorkerSettings,
    *,
    index: VectorIndex | None = None,
    embedder: Embedder | None = None,
    blobs: BlobStore | None = None,
    callbacks: Queue | None = None,
    breakers: BreakerStates | None = None,
    vector_cache: VectorCache | None = None,
    clock: Clock | None = None,
) -> EmbedBatch:
    """Build the worker's batch use case, with a circuit breaker each for the model and the index."""
    from indexmill.contracts.errors import ErrorCode, Trait, codes
    from indexmill.embedding.guarded import GuardedEmbedder, GuardedIndex
    from indexmill.embedding.worker import EmbedBatch
    from indexmill.platform.breakers import EMBEDDING, INDEX, Breaker

    clock = clock or SystemClock()
    states = breakers or _breakers(settings.state_table, clock)
    to_model = Breaker(EMBEDDING, ErrorCode.EMBEDDING_UNAVAILABLE, codes(Trait.OUTAGE), states, clock)
    to_index = Breaker(INDEX, ErrorCode.SEARCH_UNAVAILABLE, codes(Trait.OUTAGE), states, clock)
    return EmbedBatch(
        index=GuardedIndex(index or _index(_database(settings)), to_index),
        embedder=GuardedEmbedder(_punctual(embedder, settings, clock, _TASK_S), to_model),
        blobs=blobs or _blobs(settings.bucket_name),
        callbacks=callbacks or _queue(settings.callbacks_queue_url),
        vector_cache=vector_cache or _vector_cache(settings.bucket_name),
        clock=clock,
        board=ProgressBoard(settings.state_table, clock),
    )


def _database(settings: EmbeddingSettings, answer_s: float = ANSWER_S) -> Database:
    return Database(address_of(settings), answer_s=answer_s)


def _index(database: Database) -> VectorIndex:
    from indexmill.embedding.adapters.pgvector.index import PgVectorIndex

    return PgVectorIndex(database)


def _embedder(settings: EmbeddingSettings, clock: Clock, request_timeout_s: float) -> OpenAIEmbedder:
    from indexmill.contracts.errors import ErrorCode
    from indexmill.embedding.adapters.openai_embedder import OpenAIEmbedder
    from indexmill.platform.aws.secrets import Secret

    # An endpoint that asks for no key is given one all the same: the client insists.
    literal = settings.embedding_api_key or (None if settings.embedding_api_key_secret_arn else "none")
    api_key = Secret(
        literal, settings.embedding_api_key_secret_arn, unavailable=ErrorCode.EMBEDDING_UNAVAILABLE
    )
    return OpenAIEmbedder(
        Space(settings.embedding_model, settings.embedding_dimension),
        base_url=settings.embedding_base_url,
        api_key=api_key,
        request_timeout_s=request_timeout_s,
        clock=clock,
    )


def _for_callers(
    embedder: Embedder | None, settings: EmbeddingSettings, states: BreakerStates, clock: Clock
) -> Embedder:
    """Return an embedder for callers who wait: with a breaker of their own, which pauses no stage."""
    from indexmill.contracts.errors import ErrorCode, Trait, codes
    from indexmill.embedding.guarded import GuardedEmbedder
    from indexmill.platform.breakers import EMBEDDING_QUERY, Breaker

    breaker = Breaker(EMBEDDING_QUERY, ErrorCode.EMBEDDING_UNAVAILABLE, codes(Trait.OUTAGE), states, clock)
    return GuardedEmbedder(_punctual(embedder, settings, clock, _REQUEST_S), breaker)


def _punctual(
    embedder: Embedder | None, settings: EmbeddingSettings, clock: Clock, request_timeout_s: float
) -> Embedder:
    from indexmill.embedding.guarded import PunctualEmbedder

    if embedder is not None:
        return PunctualEmbedder(embedder)
    made = _embedder(settings, clock, request_timeout_s)
    return PunctualEmbedder(made, prepare=made.load, end=made.end)


def _reranker(settings: EmbeddingReadApiSettings) -> Reranker | None:
    from indexmill.embedding.adapters.http_reranker import HttpReranker
    from indexmill.embedding.guarded import GuardedReranker
    from indexmill.platform.aws.secrets import Secret

    if not settings.rerank_url:
        return None
    literal, arn = settings.rerank_api_key, settings.rerank_api_key_secret_arn
    api_key = Secret(literal, arn) if literal or arn else None
    made = HttpReranker(settings.rerank_url, settings.rerank_model, api_key)
    return GuardedReranker(made, end=made.end)


def _blobs(bucket: str) -> BlobStore:
    from indexmill.platform.aws.s3_blobs import BlobStore

    return BlobStore(bucket)


def _vector_cache(bucket: str) -> VectorCache:
    from indexmill.embedding.adapters.s3_vector_cache import S3VectorCache

    return S3VectorCache(bucket)


def _breakers(table: str, clock: Clock, *, caller_waits: bool = False) -> BreakerStates:
    from indexmill.platform.breakers import WHILE_A_CALLER_WAITS, BreakerStates

    return BreakerStates(table, clock, limits=WHILE_A_CALLER_WAITS if caller_waits else None)


def _queue(url: str) -> Queue:
    from indexmill.platform.aws.sqs_queue import Queue

    return Queue(url)
