"""Builds orchestrator/stream: what reads, and nothing that changes a job or sends a message."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from indexmill.orchestrator.adapters.dynamodb_windows import DynamoDbWindows
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.settings import OrchestratorStreamSettings
from indexmill.orchestrator.stream import LONGEST_WINDOW_S, StreamJob
from indexmill.platform.aws.dynamodb_progress import DynamoDbProgress
from indexmill.platform.aws.secrets import resolve
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.database import Database
from indexmill.platform.time.clock import SystemClock

_AROUND_S = 4.0
"""What the authorizer, a cold start and the last read may take of the gateway's limit."""
_SHORTEST_S = 0.5


@dataclass(frozen=True, slots=True)
class Stream:
    """Parts of the HTTP route."""

    follow: StreamJob
    observability: Observability


def build_stream(settings: OrchestratorStreamSettings) -> Stream:
    """Build orchestrator/stream; nothing is connected before its first use."""
    clock = SystemClock()
    url = resolve(settings.database_url, settings.database_url_secret_arn)
    database = Database(url, answer_s=settings.database_answer_seconds)
    store = PostgresJobs(database, settings.limits)
    follow = StreamJob(
        read=ReadJobs(store, DynamoDbProgress(settings.state_table, clock)),
        windows=DynamoDbWindows(settings.state_table, settings.stream_windows, clock),
        clock=clock,
        pause=asyncio.sleep,
        window_s=window_s(settings.integration_timeout_seconds),
    )
    return Stream(follow, Observability("orchestrator", level=settings.log_level))


def window_s(integration_timeout_s: float) -> float:
    """Return how long a window may be, so that its answer always comes before the gateway's own 504."""
    return max(_SHORTEST_S, min(LONGEST_WINDOW_S, integration_timeout_s - _AROUND_S))
