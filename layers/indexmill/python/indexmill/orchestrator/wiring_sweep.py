"""The sweeper's composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from indexmill.orchestrator.accounting import CountMessages
from indexmill.orchestrator.adapters.lambda_switch import LambdaSwitch
from indexmill.orchestrator.adapters.postgres.sweep import PostgresSweep
from indexmill.orchestrator.housekeeping import Purge
from indexmill.orchestrator.ports_sweep import Backlog, Retention, SweepStore, Switch
from indexmill.orchestrator.rescue import Rescue
from indexmill.orchestrator.settings import OrchestratorSweeperSettings
from indexmill.orchestrator.sweep import Stores, SweepJobs
from indexmill.orchestrator.switches import SetSwitches
from indexmill.orchestrator.wiring import Parts, assemble, build_database, build_parts
from indexmill.platform.aws.dynamodb_breakers import DynamoDbBreakers
from indexmill.platform.aws.sqs_backlog import SqsBacklog
from indexmill.platform.breaker_states import BreakerStates
from indexmill.platform.time.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class SweepParts:
    """What only the sweeper uses; tests put twins in."""

    store: SweepStore
    queues: Mapping[str, Backlog]
    """By stage."""
    callbacks: Backlog
    switches: Mapping[str, Switch]
    """By stage."""
    breakers: BreakerStates
    clock: Clock


def assemble_sweeper(parts: Parts, own: SweepParts, keep: Retention | None = None) -> SweepJobs:
    """Put the parts together."""
    shared = assemble(parts)
    told = parts.observability
    return SweepJobs(
        stores=Stores(parts.store, own.store),
        relay=shared.relay,
        count=CountMessages(own.store, own.queues, own.callbacks),
        rescue=Rescue(own.store, shared.record, shared.relay, told),
        switches=SetSwitches(own.store, own.breakers, own.switches, told, own.clock),
        purge=Purge(own.store, keep or Retention()),
        observability=told,
    )


def build_sweeper(settings: OrchestratorSweeperSettings) -> SweepJobs:
    """Build orchestrator/sweeper."""
    database = build_database(settings)
    store, clock = PostgresSweep(database), SystemClock()
    own = SweepParts(
        store=store,
        queues={
            "scraping": SqsBacklog([settings.scrape_queue_url, settings.scrape_dlq_url]),
            "chunking": SqsBacklog([settings.chunk_queue_url, settings.chunk_dlq_url]),
            "embedding": SqsBacklog([settings.embed_queue_url, settings.embed_dlq_url]),
        },
        callbacks=SqsBacklog([settings.callbacks_queue_url, settings.callbacks_dlq_url]),
        switches={
            "scraping": LambdaSwitch(settings.scrape_mapping_id),
            "chunking": LambdaSwitch(settings.chunk_mapping_id),
            "embedding": LambdaSwitch(settings.embed_mapping_id),
        },
        breakers=DynamoDbBreakers(settings.state_table, clock),
        clock=clock,
    )
    keep = Retention(payloads=timedelta(days=settings.payload_retention_days))
    return assemble_sweeper(build_parts(settings, database), own, keep)
