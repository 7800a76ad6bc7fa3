"""The Orchestrator's composition root: the only place that builds its adapters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.complete import CompleteStage
from indexmill.orchestrator.dead_letters import BuryDeadLetters
from indexmill.orchestrator.grant_stream import GrantStream
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.queries.history import ReadHistory
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.results import Decider, Recorder, ResultBatch
from indexmill.orchestrator.settings import (
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


@dataclass(frozen=True, slots=True)
class Parts:
    """What the use cases are made of; tests put twins in."""

    store: JobStore
    queues: dict[str, Queue]
    """By stage."""
    observability: Observability


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """What every function of the service shares, built from one set of parts."""

    parts: Parts
    relay: Relay
    record: Recorder


def assemble(parts: Parts) -> Orchestrator:
    """Put the parts together."""
    record = Recorder(parts.store, Decider(SystemClock()), parts.observability)
    return Orchestrator(parts, Relay(parts.store, parts.queues, record), record)


def build_database(settings: OrchestratorSettings, answer_s: float = ANSWER_S) -> Database:
    """Build the one connection; it is opened when it is first used."""
    url = resolve(settings.database_url, settings.database_url_secret_arn)
    return Database(url, answer_s=answer_s)


def build_parts(settings: OrchestratorSettings, database: Database | None = None) -> Parts:
    """Build the real adapters; nothing is connected before its first use."""
    return Parts(
        store=PostgresJobs(database or build_database(settings), settings.limits),
        queues=_queues(settings),
        observability=Observability("orchestrator", level=settings.log_level),
    )


def _queues(settings: OrchestratorSettings) -> dict[str, Queue]:
    return {
        "scraping": SqsQueue(settings.scrape_queue_url),
        "chunking": SqsQueue(settings.chunk_queue_url),
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


def build_api(settings: OrchestratorApiSettings, parts: Parts | None = None) -> Api:
    """Build orchestrator/api."""
    database = build_database(settings, settings.database_answer_seconds)
    shared = assemble(parts or build_parts(settings, database))
    allowed = parse_allowed_hosts(settings.allowed_private_hosts)
    clock = SystemClock()
    store, relay = shared.parts.store, shared.relay
    read = ReadJobs(store, DynamoDbProgress(settings.state_table, clock))
    secret = partial(resolve, settings.stream_token_key, settings.stream_token_key_secret_arn)
    return Api(
        SubmitJobs(store, relay, allowed),
        read,
        ReadHistory(store),
        CompleteStage(shared.record, relay),
        GrantStream(read, clock, secret),
        CancelJob(store, relay, clock),
        RetryJobs(store, relay),
        ReplayJobs(store, relay),
        clock,
        shared.parts.observability,
    )


def build_results(settings: OrchestratorResultsSettings, parts: Parts | None = None) -> SqsBatch[StageResult]:
    """Build orchestrator/results: the consumer of the callback queue."""
    shared = assemble(parts or build_parts(settings))
    return SqsBatch(
        StageResult,
        ResultBatch(shared.record, shared.relay),
        source=SqsQueue(settings.callbacks_queue_url),
        dead=SqsQueue(settings.callbacks_dlq_url),
        observability=shared.parts.observability,
    )


def build_dead_letters(
    settings: OrchestratorDeadLettersSettings, parts: Parts | None = None, blobs: BlobStore | None = None
) -> BuryDeadLetters:
    """Build orchestrator/dead_letters."""
    shared = assemble(parts or build_parts(settings))
    return BuryDeadLetters(
        shared.parts.store,
        shared.record,
        shared.relay,
        blobs or S3Blobs(settings.bucket_name),
        shared.parts.observability,
    )
