"""Real functions that fail, crash or time out, behind a queue: no message is lost, and delivery continues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.compute.host import HostOptions, LambdaHost
from local.template.spec import FunctionSpec, InvokeResult
from local.triggers.sqs import SqsEventSource
from tests.integration.triggers.harness import ACCOUNT, REGION, Queue, Record, Recorder, until

Start = Callable[..., Awaitable[SqsEventSource]]
MakeQueue = Callable[..., Queue]

# Fails as the first line of each message says, at its first delivery.
HANDLER = """
import ctypes
import json
import os
import sys

def handler(event, context):
    records = event["Records"]
    with open("seen.jsonl", "a") as seen:
        for record in records:
            count = int(record["attributes"]["ApproximateReceiveCount"])
            seen.write(json.dumps([record["body"], count, os.getpid()]) + "\\n")
    how = {record["body"] for record in records
           if record["attributes"]["ApproximateReceiveCount"] == "1"}
    if "raise" in how:
        raise LookupError("no such shelf")
    if "exit" in how:
        sys.exit(3)
    if "leave" in how:
        os._exit(0)
    if "segfault" in how:
        ctypes.string_at(0)
    if "memory" in how:
        bytearray(800 * 1024 * 1024)
        import time
        time.sleep(5)
    if "loop" in how:
        while True:
            pass
    if "every" in how:
        return {"batchItemFailures": [{"itemIdentifier": r["messageId"]} for r in records]}
    if "nonsense" in how:
        return {"batchItemFailures": [{"id": r["messageId"]} for r in records]}
"""


@pytest_asyncio.fixture
async def host(tmp_path: Path) -> AsyncIterator[LambdaHost]:
    """Yield a host with one function with a timeout of 1 s."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "app.py").write_text(HANDLER)
    spec = FunctionSpec("Function", "function", "app.handler", code, (), 1, 256, {})
    # The journal beside the code is no change of the code.
    options = HostOptions(preload=(), hot_reload=False)
    made = LambdaHost([spec], region=REGION, log_dir=tmp_path / "logs", account_id=ACCOUNT, options=options)
    await made.start()
    yield made
    await made.stop()


def seen(host: LambdaHost) -> list[list[Any]]:
    """Return body, receive count and process of each record that the function was given."""
    file = host.spec("function").code_dir / "seen.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.fault("F22")
@pytest.mark.parametrize("report_failures", [True, False])
@pytest.mark.parametrize("how", ["raise", "exit", "leave", "segfault", "memory", "loop"])
async def test_a_batch_whose_invocation_fails_is_redelivered_whole(
    how: str, report_failures: bool, host: LambdaHost, queue: MakeQueue, start_source: Start
) -> None:
    q = queue(visibility_s=2)
    await q.send(how, "bystander")
    source = await start_source(q, host, report_batch_item_failures=report_failures)
    await until(lambda: len(seen(host)) >= 4, limit_s=12)
    await until(q.is_empty)
    assert sorted(each[:2] for each in seen(host)) == sorted(
        [[how, 1], ["bystander", 1], [how, 2], ["bystander", 2]]
    )
    first, second = seen(host)[0][2], seen(host)[-1][2]
    assert (first == second) == (how == "raise"), "a process that ended is replaced, a raise keeps it"
    # The queue applies the last delete before its response arrives here.
    await until(lambda: source.stats().deleted == 2)
    assert source.stats().function_errors == 1


@pytest.mark.fault("F20")
@pytest.mark.parametrize("how", ["every", "nonsense"])
async def test_a_batch_that_is_reported_failed_as_a_whole_is_no_invocation_error(
    how: str, host: LambdaHost, queue: MakeQueue, start_source: Start
) -> None:
    q = queue(visibility_s=1)
    await q.send(how, "bystander")
    source = await start_source(q, host, report_batch_item_failures=True)
    await until(lambda: len(seen(host)) >= 4)
    await until(q.is_empty)
    assert len({each[2] for each in seen(host)}) == 1, "the process went on"
    await until(lambda: source.stats().deleted == 2)
    stats = source.stats()
    assert (stats.function_errors, stats.item_failures) == (0, 2)
    assert host.stats()["function"].errors == 0


@pytest.mark.fault("F23")
async def test_a_message_whose_visibility_ends_while_it_is_worked_on_runs_a_second_time_beside_it(
    queue: MakeQueue, start_source: Start
) -> None:
    go = asyncio.Event()

    async def work(records: list[Record]) -> InvokeResult:
        if records[0]["attributes"]["ApproximateReceiveCount"] == "1":
            await go.wait()
        return InvokeResult(b"null")

    q, invoker = queue(visibility_s=1), Recorder(work)
    await q.send("slow")
    source = await start_source(q, invoker)
    await until(lambda: len(invoker.batches) == 2)
    assert invoker.most_running == 2
    assert len(invoker.shared) == 1, "the same message in two invocations at once"
    counts = [batch[0]["attributes"]["ApproximateReceiveCount"] for batch in invoker.batches]
    assert counts == ["1", "2"]
    await until(q.is_empty)
    # The late one succeeds too: its messages are already deleted, which is no error.
    go.set()
    await until(lambda: source.stats().in_flight == 0)
    assert (await q.counts(), source.stats().function_errors) == ((0, 0), 0)
