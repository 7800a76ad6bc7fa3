"""The Orchestrator's composition root: the only place that builds its adapters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from indexmill.contracts.content import INLINE_LIMIT_BYTES
from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.adapters.lambda_chunker import LambdaChunker
from indexmill.orchestrator.adapters.lambda_successor import LambdaSuccessor
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.complete import CompleteStage
from indexmill.orchestrator.dead_letters import BuryDeadLetters
from indexmill.orchestrator.grant_stream import GrantStream
from indexmill.orchestrator.hand_over import HandOver, Successor, TakeOver
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.ports_chunking import Chunker
from indexmill.orchestrator.queries.history import ReadHistory
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.relay import CallRelay, Relay
from indexmill.orchestrator.results import Decider, Recorder, ResultBatch
from indexmill.orchestrator.settings import (
    ChunkingCallerSettings,
    OrchestratorApiSettings,
    OrchestratorDeadLettersSettings,
    OrchestratorResultsSettings,
    OrchestratorSettings,
)
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.aws.dynamodb_progress import DynamoDbProgress
from indexmill.platform.aws.s3_blobs import S3Blobs
from indexmill.platform.aws.secrets import resolve
from indexmill.platform.aws.sqs_queue import SqsQueue
from indexmill.platform.blobs import BlobStore
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.database import ANSWER_S, Database
from indexmill.platform.queues import Queue
from indexmill.platform.security.urls import parse_allowed_hosts
from indexmill.platform.time.clock import Clock, SystemClock

_ENVELOPE_BYTES = 4_000
"""What a message carries beside its chunks."""
_CALL_SLACK_S = 5


@dataclass(frozen=True, slots=True)
class Parts:
    """What the use cases are made of; tests put twins in."""

    store: JobStore
    queues: dict[str, Queue]
    chunker: Chunker
    observability: Observability


@dataclass(frozen=True, slots=True)
class ApiParts:
    """The same for the HTTP functions, which wait for nobody."""

    store: JobStore
    queues: dict[str, Queue]
    successor: Successor
    observability: Observability


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """What every function of the service shares that no caller waits for, built from one set of parts."""

    parts: Parts
    calls: CallRelay
    record: Recorder


def assemble(parts: Parts) -> Orchestrator:
    """Put the parts together."""
    relay = Relay(parts.store, parts.queues)
    record = Recorder(parts.store, Decider(SystemClock()), parts.observability)
    calls = CallRelay(relay, parts.chunker, record, INLINE_LIMIT_BYTES - _ENVELOPE_BYTES)
    return Orchestrator(parts, calls, record)


def build_database(settings: OrchestratorSettings, answer_s: float = ANSWER_S) -> Database:
    """Build the one connection; it is opened when it is first used."""
    url = resolve(settings.database_url, settings.database_url_secret_arn)
    return Database(url, answer_s=answer_s)


def build_parts(settings: ChunkingCallerSettings, database: Database | None = None) -> Parts:
    """Build the real adapters; nothing is connected before its first use."""
    database = database or build_database(settings)
    return Parts(
        store=PostgresJobs(database, settings.limits),
        queues=_queues(settings),
        chunker=LambdaChunker(
            settings.chunking_function, timeout_s=settings.chunk_timeout_seconds + _CALL_SLACK_S
        ),
        observability=Observability("orchestrator", level=settings.log_level),
    )


def _api_parts(settings: OrchestratorApiSettings, database: Database) -> ApiParts:
    return ApiParts(
        store=PostgresJobs(database, settings.limits),
        queues=_queues(settings),
        successor=LambdaSuccessor(settings.results_function),
        observability=Observability("orchestrator", level=settings.log_level),
    )


def _queues(settings: OrchestratorSettings) -> dict[str, Queue]:
    return {
        "scraping": SqsQueue(settings.scrape_queue_url),
        "embedding": SqsQueue(settings.embed_queue_url),
    }


@dataclass(frozen=True, slots=True)
class Api:
    """What the HTTP routes need."""

    submit: SubmitJobs
    read: ReadJobs
    history: ReadHistory
    complete: CompleteStage
    grant_stream: GrantStream
    cancel: CancelJob
    retry: RetryJobs
    replays: ReplayJobs
    clock: Clock
    observability: Observability


def build_api(settings: OrchestratorApiSettings, parts: ApiParts | None = None) -> Api:
    """Build orchestrator/api."""
    database = build_database(settings, settings.database_answer_seconds)
    parts = parts or _api_parts(settings, database)
    allowed = parse_allowed_hosts(settings.allowed_private_hosts)
    clock = SystemClock()
    store = parts.store
    send = HandOver(Relay(store, parts.queues), parts.successor)
    read = ReadJobs(store, DynamoDbProgress(settings.state_table, clock))
    secret = partial(resolve, settings.stream_token_key, settings.stream_token_key_secret_arn)
    return Api(
        SubmitJobs(store, send, allowed),
        read,
        ReadHistory(store),
        CompleteStage(Recorder(store, Decider(clock), parts.observability), send),
        GrantStream(read, clock, secret),
        CancelJob(store, send, clock),
        RetryJobs(store, send),
        ReplayJobs(store, send),
        clock,
        parts.observability,
    )


def build_results(
    settings: OrchestratorResultsSettings, parts: Parts | None = None
) -> tuple[SqsBatch[StageResult], TakeOver]:
    """Build orchestrator/results: what it does with a queue's reports, and with what is handed over to it."""
    shared = assemble(parts or build_parts(settings))
    reports = SqsBatch(
        StageResult,
        ResultBatch(shared.record, shared.calls),
        source=SqsQueue(settings.callbacks_queue_url),
        dead=SqsQueue(settings.callbacks_dlq_url),
        observability=shared.parts.observability,
    )
    return reports, TakeOver(shared.parts.store, shared.calls)


def build_dead_letters(
    settings: OrchestratorDeadLettersSettings, parts: Parts | None = None, blobs: BlobStore | None = None
) -> BuryDeadLetters:
    """Build orchestrator/dead_letters."""
    shared = assemble(parts or build_parts(settings))
    return BuryDeadLetters(
        shared.parts.store,
        shared.record,
        shared.calls,
        blobs or S3Blobs(settings.bucket_name),
        shared.parts.observability,
    )
