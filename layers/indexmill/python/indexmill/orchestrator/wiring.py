"""Composition root of the Orchestrator: the only place that builds its adapters.

Parts of one Lambda function alone are imported where it is built, so that no cold start pays for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from indexmill.contracts.cost import Prices
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.settings import (
    OrchestratorApiSettings,
    OrchestratorDeadLettersSettings,
    OrchestratorResultsSettings,
    OrchestratorSettings,
    OrchestratorStreamSettings,
    OrchestratorSweeperSettings,
)
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.address import address_of
from indexmill.platform.postgres.database import ANSWER_S, Database
from indexmill.platform.time import Clock, SystemClock

if TYPE_CHECKING:
    from indexmill.contracts.messages import StageResult
    from indexmill.orchestrator.http.api import Api
    from indexmill.orchestrator.outbox.relay import Relay
    from indexmill.orchestrator.results.apply import Recorder
    from indexmill.orchestrator.store.sweep import Retention, SweepStore
    from indexmill.orchestrator.sweeper.sweep import IndexBuilder, Mirror, SweepJobs
    from indexmill.orchestrator.sweeper.switches import Switch
    from indexmill.platform.aws.sqs_queue import SqsBacklog
    from indexmill.platform.breakers import BreakerStates
    from indexmill.platform.consumer.sqs_batch import SqsBatch
    from indexmill.platform.http.app import Handler

_AROUND_S = 4.0
"""Of the gateway's limit: what authorizer, cold start and last read of a stream's response may take."""
_SHORTEST_S = 0.5


@dataclass(frozen=True, slots=True)
class Parts:
    """Adapters that every function uses; tests bring twins."""

    store: JobStore
    queues: dict[str, Queue]
    """By stage."""
    observability: Observability


@dataclass(frozen=True, slots=True)
class SweepParts:
    """Adapters that only the sweeper uses; tests bring twins."""

    store: SweepStore
    queues: Mapping[str, SqsBacklog]
    """By stage."""
    callbacks: SqsBacklog
    switches: Mapping[str, Switch]
    """By stage."""
    breakers: BreakerStates
    index_builder: IndexBuilder
    mirror: Mirror
    clock: Clock
    model: str
    """Embeds documents now."""
    dimension: int


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """Use cases that the functions of the service share, built from one set of parts."""

    parts: Parts
    relay: Relay
    record: Recorder


def assemble(parts: Parts, prices: Prices | None = None) -> Orchestrator:
    """Put the shared parts together; without `prices` budgets are compared by the list prices."""
    from indexmill.orchestrator.outbox.relay import Relay
    from indexmill.orchestrator.results.apply import Recorder
    from indexmill.orchestrator.results.decide import Decider

    decide = Decider(SystemClock(), prices=prices or Prices())
    record = Recorder(parts.store, decide, parts.observability)
    return Orchestrator(parts, Relay(parts.store, parts.queues, record, parts.observability), record)


def build_database(settings: OrchestratorSettings, answer_s: float = ANSWER_S) -> Database:
    """Build the function's one connection; it is opened when it is first used."""
    return Database(address_of(settings), answer_s=answer_s)


def build_parts(settings: OrchestratorSettings, database: Database | None = None) -> Parts:
    """Build the real adapters; nothing is connected before its first use."""
    return Parts(
        store=JobStore(database or build_database(settings), settings.limits),
        queues={stage.name: Queue(getattr(settings, f"{stage.queue}_queue_url")) for stage in STAGES},
        observability=Observability("orchestrator", level=settings.log_level),
    )


def build_api(settings: OrchestratorApiSettings) -> Handler:
    """Build orchestrator/api."""
    from indexmill.orchestrator.http.api import ADD_WORK, COMPLETE, action_routes, open_routes, routes
    from indexmill.platform.http.app import serve
    from indexmill.platform.limits.enforcer import Backpressure

    api = build_use_cases(settings)
    # Of the jobs of all callers; one beyond the bound is enough to know.
    load = partial(api.submit.store.read, methodcaller("load", settings.max_queue_depth + 1))
    return serve(
        [routes(api), action_routes(api), open_routes(api)],
        settings,
        api.observability,
        # A stage's report is never refused for a limit: without it the job would wait for its rescue.
        exempt=[COMPLETE],
        pressure=Backpressure(load, settings, SystemClock(), api.observability, routes=ADD_WORK),
        active=api.health.active,
    )


def build_use_cases(settings: OrchestratorApiSettings, parts: Parts | None = None) -> Api:
    """Build what the routes of orchestrator/api call."""
    from indexmill.orchestrator.actions.cancel import CancelBatch, CancelJob
    from indexmill.orchestrator.actions.delete import DeleteDocuments
    from indexmill.orchestrator.actions.replay import ReplayJobs
    from indexmill.orchestrator.actions.retry import RetryJobs
    from indexmill.orchestrator.adapters.aws import LambdaScraper, S3Uploads
    from indexmill.orchestrator.http.api import Api, RecordAlias
    from indexmill.orchestrator.queries.jobs import ReadHistory, ReadJobs
    from indexmill.orchestrator.queries.limits import ReadHealth, ShowLimits
    from indexmill.orchestrator.queries.stream import GrantStream
    from indexmill.orchestrator.results.complete import CompleteStage
    from indexmill.orchestrator.submission.dry_run import TryOut
    from indexmill.orchestrator.submission.submit import SubmitJobs
    from indexmill.orchestrator.submission.uploads import GrantUpload
    from indexmill.platform.aws.s3_blobs import BlobStore
    from indexmill.platform.http.app import build_active
    from indexmill.platform.progress import Cancels, ProgressBoard
    from indexmill.platform.security.urls import parse_allowed_hosts

    database = build_database(settings, settings.database_answer_seconds)
    shared = assemble(parts or build_parts(settings, database), settings.prices)
    clock, store, relay = SystemClock(), shared.parts.store, shared.relay
    read = ReadJobs(store, ProgressBoard(settings.state_table, clock), settings.prices)
    key = Secret(settings.stream_token_key, settings.stream_token_key_secret_arn)
    uploads, cancels = S3Uploads(settings.bucket_name), Cancels(settings.state_table, clock)
    active = build_active("orchestrator", settings)
    limits = ShowLimits(store, active.store, active.clock, settings, settings.shares)
    submit = SubmitJobs(
        store,
        relay,
        BlobStore(settings.bucket_name),
        uploads,
        parse_allowed_hosts(settings.allowed_private_hosts),
        isolation=settings.corpus_isolation,
        recipe={"model": settings.embedding_model, "dimension": settings.embedding_dimension},
    )
    return Api(
        submit,
        TryOut(submit, LambdaScraper(settings.scraper_function), settings.prices),
        read,
        GrantUpload(uploads, clock),
        ReadHealth(store, active, clock, settings.release_id),
        ReadHistory(store),
        CompleteStage(shared.record, relay),
        GrantStream(read, clock, key.current),
        CancelJob(store, relay, clock, cancels),
        CancelBatch(store, relay, clock, cancels),
        RetryJobs(store, relay),
        ReplayJobs(store, relay),
        DeleteDocuments(
            store, relay, clock, cancels, settings.corpus_isolation, submit.allowed_private_hosts, key
        ),
        limits,
        RecordAlias(store),
        clock,
        shared.parts.observability,
    )


def build_stream(settings: OrchestratorStreamSettings) -> Handler:
    """Build orchestrator/stream: it reads, changes no job and sends no message."""
    import asyncio

    from indexmill.orchestrator.http.stream import routes
    from indexmill.orchestrator.queries.jobs import ReadJobs
    from indexmill.orchestrator.queries.stream import StreamJob, StreamPlaces
    from indexmill.platform.http.app import serve
    from indexmill.platform.progress import ProgressBoard

    clock = SystemClock()
    database = Database(address_of(settings), answer_s=settings.database_answer_seconds)
    store = JobStore(database, settings.limits)
    follow = StreamJob(
        read=ReadJobs(store, ProgressBoard(settings.state_table, clock)),
        places=StreamPlaces(settings.state_table, settings.stream_windows, clock),
        clock=clock,
        pause=asyncio.sleep,
        window_s=window_s(settings.integration_timeout_seconds),
    )
    observability = Observability("orchestrator", level=settings.log_level)
    return serve([routes(follow)], settings, observability)


def window_s(integration_timeout_s: float) -> float:
    """Return how long a response may wait for an event: it always precedes the gateway's own 504."""
    from indexmill.orchestrator.queries.stream import LONGEST_WINDOW_S

    return max(_SHORTEST_S, min(LONGEST_WINDOW_S, integration_timeout_s - _AROUND_S))


def build_results(settings: OrchestratorResultsSettings) -> SqsBatch[StageResult]:
    """Build orchestrator/results: the consumer of the callback queue."""
    from indexmill.contracts.messages import StageResult
    from indexmill.orchestrator.results.apply import ApplyResults
    from indexmill.platform.consumer.sqs_batch import SqsBatch

    shared = assemble(build_parts(settings), settings.prices)
    return SqsBatch(
        StageResult,
        ApplyResults(shared.record, shared.relay),
        source=Queue(settings.callbacks_queue_url),
        dead=Queue(settings.callbacks_dlq_url),
        observability=shared.parts.observability,
    )


def build_dead_letters(settings: OrchestratorDeadLettersSettings) -> Handler:
    """Build orchestrator/dead_letters."""
    from indexmill.orchestrator.results.dead_letters import KeepDeadLetters
    from indexmill.platform.aws.s3_blobs import BlobStore
    from indexmill.platform.consumer.sqs_batch import refuse_other_queues

    shared = assemble(build_parts(settings))
    blobs = BlobStore(settings.bucket_name)
    keep = KeepDeadLetters(shared.parts.store, shared.record, shared.relay, blobs, shared.parts.observability)
    own = [Queue(getattr(settings, f"{stage.queue}_dlq_url")) for stage in STAGES]
    own.append(Queue(settings.callbacks_dlq_url))

    def handle(event: dict[str, Any], _context: object) -> dict[str, Any]:
        refuse_other_queues(event, own)
        return keep(event)

    return handle


def build_sweeper(settings: OrchestratorSweeperSettings) -> Handler:
    """Build orchestrator/sweeper."""
    from datetime import timedelta

    from indexmill.orchestrator.adapters.aws import LambdaIndexBuilder, LambdaSwitch, ProgressItems, S3Objects
    from indexmill.orchestrator.store.sweep import Retention, SweepStore
    from indexmill.orchestrator.sweeper.deletions import ReportDeletions
    from indexmill.orchestrator.sweeper.sweep import Mirror
    from indexmill.platform.aws.signing import Signer
    from indexmill.platform.aws.sqs_queue import SqsBacklog
    from indexmill.platform.aws.state_table import StateTable
    from indexmill.platform.breakers import BreakerStates

    database, clock = build_database(settings), SystemClock()
    own = SweepParts(
        store=SweepStore(database),
        queues={
            stage.name: SqsBacklog(
                [getattr(settings, f"{stage.queue}_queue_url"), getattr(settings, f"{stage.queue}_dlq_url")]
            )
            for stage in STAGES
        },
        callbacks=SqsBacklog([settings.callbacks_queue_url, settings.callbacks_dlq_url]),
        switches={
            stage.name: LambdaSwitch(getattr(settings, f"{stage.queue}_mapping_id")) for stage in STAGES
        },
        breakers=BreakerStates(settings.state_table, clock),
        index_builder=LambdaIndexBuilder(settings.index_builder_function),
        mirror=Mirror(settings.state_table, clock),
        clock=clock,
        model=settings.embedding_model,
        dimension=settings.embedding_dimension,
    )
    keep = Retention(payloads=timedelta(days=settings.payload_retention_days))
    parts = build_parts(settings, database)
    deletions = ReportDeletions(
        parts.store,
        S3Objects(settings.bucket_name),
        ProgressItems(StateTable(settings.state_table, clock)),
        Signer(settings.signing_key_id),
        keep.tombstones,
        settings.lifetimes,
        (settings.embedding_model, settings.embedding_dimension),
    )
    sweep = assemble_sweeper(parts, own, keep, deletions)

    def handle(_event: dict[str, Any], _context: object) -> dict[str, Any]:
        return dict(sweep())

    return handle


def assemble_sweeper(
    parts: Parts,
    own: SweepParts,
    keep: Retention | None = None,
    deletions: Callable[[], int] | None = None,
) -> SweepJobs:
    """Put the sweeper's parts together."""
    from indexmill.orchestrator.store.sweep import Retention
    from indexmill.orchestrator.sweeper.rescue import CountMessages, Rescue
    from indexmill.orchestrator.sweeper.sweep import FindOtherModels, MirrorCallers, Purge, Stores, SweepJobs
    from indexmill.orchestrator.sweeper.switches import SetSwitches

    shared, observability = assemble(parts), parts.observability
    return SweepJobs(
        stores=Stores(parts.store, own.store),
        relay=shared.relay,
        count=CountMessages(own.store, own.queues, own.callbacks),
        rescue=Rescue(own.store, shared.record, shared.relay, observability),
        switches=SetSwitches(own.store, own.breakers, own.switches, observability, own.clock),
        purge=Purge(own.store, keep or Retention()),
        index_builder=own.index_builder,
        mirror=MirrorCallers(own.store, own.mirror),
        other_models=FindOtherModels(own.store, own.model, own.dimension, observability, own.clock),
        observability=observability,
        deletions=deletions,
    )
