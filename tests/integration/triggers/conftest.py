"""Queues and sources per test, on the session's MiniStack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from local.backends.ministack import MiniStack
from local.triggers.sqs import SqsEventSource
from local.triggers.sqs_client import SqsClient
from tests.integration.triggers.harness import REGION, Queue, Recorder


@pytest.fixture
def endpoint(ministack: MiniStack) -> str:
    return ministack.endpoint


@pytest.fixture
def queue(endpoint: str) -> Callable[..., Queue]:
    """Yield a factory of queues; visibility timeout 30 s by default."""

    def make(visibility_s: int = 30, **attributes: str) -> Queue:
        return Queue(endpoint, VisibilityTimeout=str(visibility_s), **attributes)

    return make


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Callable[[str, str], SqsClient]]:
    """Yield a factory of raw clients for an endpoint and a queue URL; closed after the test."""
    clients: list[SqsClient] = []

    def make(endpoint: str, queue_url: str) -> SqsClient:
        clients.append(SqsClient(endpoint, queue_url, region=REGION))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


StartSource = Callable[..., Awaitable[SqsEventSource]]


@pytest_asyncio.fixture
async def start_source() -> AsyncIterator[StartSource]:
    """Yield a factory of sources on a queue; stopped after the test."""
    started: list[SqsEventSource] = []

    async def start(queue: Queue, invoker: Recorder, **options: Any) -> SqsEventSource:
        source = queue.source(invoker, **options)
        await source.start()
        started.append(source)
        return source

    yield start
    for source in started:
        await source.stop()
