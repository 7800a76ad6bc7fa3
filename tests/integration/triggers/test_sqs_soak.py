"""Two sources on one queue, functions that fail at random: nothing is lost, nothing runs twice at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from local.template.spec import InvokeResult, Throttled
from local.triggers.sqs import SqsEventSource
from tests.integration.triggers.harness import Queue, Record, Recorder, failures, until


@pytest.mark.parametrize(
    ("messages", "prompt"), [(500, True), (500, False), pytest.param(2000, True, marks=pytest.mark.long)]
)
async def test_every_message_is_settled_once_and_never_runs_twice_at_once(
    queue: Callable[..., Queue],
    start_source: Callable[..., Awaitable[SqsEventSource]],
    messages: int,
    prompt: bool,
) -> None:
    chance = random.Random(20)
    settled: Counter[str] = Counter()

    async def sometimes_fail(records: list[Record]) -> InvokeResult:
        await asyncio.sleep(chance.random() * 0.01)
        draw = chance.random()
        if draw < 0.03:
            return InvokeResult(b"{}", "Unhandled")
        if draw < 0.05:
            raise Throttled
        if draw < 0.07:
            return InvokeResult(b"not a reply")
        failed = [r["messageId"] for r in records if chance.random() < 0.05]
        settled.update(r["body"] for r in records if r["messageId"] not in failed)
        return failures(failed)

    q, invoker = queue(visibility_s=2), Recorder(sometimes_fail)
    options = {"report_batch_item_failures": True, "prompt_long_polls": prompt}
    sources = [await start_source(q, invoker, maximum_concurrency=4, **options) for _ in range(2)]
    await q.send(*(str(i) for i in range(messages)))
    await until(q.is_empty, limit_s=30)
    assert set(settled) == {str(i) for i in range(messages)}
    assert set(settled.values()) == {1}
    assert invoker.shared == []
    assert invoker.most_running <= 8
    assert sum(source.stats().deleted for source in sources) == messages
