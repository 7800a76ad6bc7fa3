"""Running event source mappings, enabled and changed through the lambda client of the AWS SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import boto3
import pytest_asyncio

from local.compute.host import HostOptions, LambdaHost
from local.compute.invoke_api import InvokeApi
from local.compute.lambda_mappings import EventSourceMappings
from local.template.spec import FunctionSpec, InvokeResult
from local.triggers.sqs import SqsEventSource
from tests.integration.triggers.harness import ACCOUNT, REGION, Queue, Record, Recorder, until

Start = Callable[..., Awaitable[SqsEventSource]]
MakeQueue = Callable[..., Queue]
Change = Callable[..., Awaitable[dict[str, Any]]]


@pytest_asyncio.fixture
async def mappings(tmp_path: Path) -> EventSourceMappings:
    """Yield mappings over a host that knows the function and runs nothing: batches go to recorders."""
    spec = FunctionSpec("Function", "function", "app.handler", tmp_path, (), 1, 128, {})
    host = LambdaHost(
        [], region=REGION, log_dir=tmp_path, account_id=ACCOUNT, options=HostOptions(preload=())
    )
    host.add([spec])
    return EventSourceMappings(host)


@pytest_asyncio.fixture
async def update(mappings: EventSourceMappings) -> AsyncIterator[Change]:
    """Change the only mapping, by its UUID as the API lists it; return its new configuration."""
    api = InvokeApi(mappings._host, mappings)
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION)
    client: Any = session.client("lambda", endpoint_url=await api.start())

    async def change(**changes: Any) -> dict[str, Any]:
        listed = await asyncio.to_thread(client.list_event_source_mappings, FunctionName="function")
        (one,) = listed["EventSourceMappings"]
        if not changes:
            return dict(one)
        return dict(await asyncio.to_thread(client.update_event_source_mapping, UUID=one["UUID"], **changes))

    yield change
    client.close()
    await api.stop()


async def test_a_disabled_mapping_delivers_nothing_until_it_is_enabled(
    queue: MakeQueue, start_source: Start, mappings: EventSourceMappings, update: Change
) -> None:
    q, invoker = queue(), Recorder()
    mappings.add(await start_source(q, invoker))
    await q.send("before")
    await until(lambda: invoker.bodies == ["before"])
    await until(q.is_empty)
    await update(Enabled=False)
    await until_state(update, "Disabled")
    await q.send("while it is off")
    await asyncio.sleep(0.5)  # an enabled source receives a message within 50 ms
    assert invoker.bodies == ["before"]
    assert await q.counts() == (1, 0)
    assert (await update(Enabled=True))["State"] == "Enabled"
    await until(lambda: invoker.bodies == ["before", "while it is off"])


async def test_switching_off_lets_the_invocation_under_way_end(
    queue: MakeQueue, start_source: Start, mappings: EventSourceMappings, update: Change
) -> None:
    go = asyncio.Event()

    async def wait(_records: list[Record]) -> InvokeResult:
        await go.wait()
        return InvokeResult(b"null")

    q, invoker = queue(), Recorder(wait)
    mappings.add(await start_source(q, invoker))
    await q.send("long")
    await until(lambda: invoker.running)
    assert (await update(Enabled=False))["State"] == "Disabling"
    go.set()
    await until_state(update, "Disabled")
    await until(q.is_empty)


async def test_a_changed_batch_size_and_concurrency_hold_from_the_next_batch(
    queue: MakeQueue, start_source: Start, mappings: EventSourceMappings, update: Change
) -> None:
    q, invoker = queue(), Recorder()
    source = await start_source(q, invoker, enabled=False)
    mappings.add(source)
    await q.send(*(str(number) for number in range(8)))
    await update(BatchSize=2, ScalingConfig={"MaximumConcurrency": 2})
    await update(Enabled=True)
    await until(q.is_empty)
    assert max(len(batch) for batch in invoker.batches) == 2
    assert invoker.most_running <= 2
    assert source.stats().allowed <= 2


async def until_state(update: Change, state: str) -> None:
    async def reached() -> bool:
        return bool((await update())["State"] == state)

    await until(reached)
