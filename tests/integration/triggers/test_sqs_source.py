"""Polling, concurrency, back-off, dead letters and the lifecycle of a source."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import pytest

from local.template.spec import InvokeResult, Throttled
from local.triggers.sqs import SqsEventSource, VisibilityTooShort
from local.triggers.sqs_polling import LongPolling
from tests.integration.triggers.harness import Queue, Record, Recorder, failures, until

Start = Callable[..., Awaitable[SqsEventSource]]
MakeQueue = Callable[..., Queue]


async def _fail(_records: list[Record]) -> InvokeResult:
    return InvokeResult(b"{}", "Unhandled")


async def _throttle(_records: list[Record]) -> InvokeResult:
    raise Throttled


@pytest.mark.fault("F19")
async def test_a_failing_message_reaches_the_dead_letter_queue(queue: MakeQueue, start_source: Start) -> None:
    dead = queue()
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": "2"})
    q, invoker = queue(visibility_s=1, RedrivePolicy=policy), Recorder(_fail)
    await q.send("bad")
    await start_source(q, invoker)

    async def dead_one() -> bool:
        return await dead.counts() == (1, 0)

    await until(dead_one)
    assert invoker.bodies == ["bad", "bad"]
    assert [b[0]["attributes"]["ApproximateReceiveCount"] for b in invoker.batches] == ["1", "2"]
    assert await q.is_empty()


async def test_the_visibility_that_a_function_sets_is_kept(queue: MakeQueue, start_source: Start) -> None:
    q = queue()

    async def come_back_in_a_second(records: list[Record]) -> InvokeResult:
        again = [r for r in records if r["attributes"]["ApproximateReceiveCount"] == "1"]
        for record in again:
            await q.hide(record["receiptHandle"], 1)
        return failures([r["messageId"] for r in again])

    invoker = Recorder(come_back_in_a_second)
    await q.send("later")
    await start_source(q, invoker, report_batch_item_failures=True)
    await until(lambda: len(invoker.batches) == 1)
    first = time.monotonic()
    await until(lambda: len(invoker.batches) == 2)
    # The queue hides it for 30 s.
    assert 0.8 < time.monotonic() - first < 10
    await until(q.is_empty)


@pytest.mark.parametrize("maximum", [1, 3])
async def test_maximum_concurrency_is_reached_and_never_exceeded(
    queue: MakeQueue, start_source: Start, maximum: int
) -> None:
    async def slow(_records: list[Record]) -> InvokeResult:
        await asyncio.sleep(0.01)
        return InvokeResult(b"null")

    q, invoker = queue(), Recorder(slow)
    await q.send(*(str(i) for i in range(40)))
    await start_source(q, invoker, batch_size=2, maximum_concurrency=maximum)
    await until(lambda: len(invoker.bodies) == 40)
    assert invoker.most_running == maximum


async def test_concurrency_grows_while_batches_are_full(queue: MakeQueue, start_source: Start) -> None:
    release = asyncio.Event()

    async def wait(_records: list[Record]) -> InvokeResult:
        await release.wait()
        return InvokeResult(b"null")

    q, invoker = queue(), Recorder(wait)
    await q.send(*(str(i) for i in range(30)))
    source = await start_source(q, invoker, batch_size=2, maximum_concurrency=9)
    await until(lambda: invoker.running == 9)
    release.set()
    await until(q.is_empty)
    assert (invoker.most_running, source.stats().messages) == (9, 30)


async def test_a_window_gathers_messages_that_come_one_by_one(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    await start_source(q, invoker, batch_size=4, window_s=20.0)
    for body in "abcd":
        await q.send(body)
    await until(lambda: invoker.batches, limit_s=10)  # full before the window closes
    assert invoker.bodies == ["a", "b", "c", "d"]


async def test_a_window_that_closes_delivers_what_came(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    await q.send("a", "b")
    await start_source(q, invoker, batch_size=10, window_s=0.4)
    start = time.monotonic()
    await until(lambda: invoker.batches)
    assert 0.3 < time.monotonic() - start < 5.0
    assert sorted(invoker.bodies) == ["a", "b"]


async def test_a_batch_over_ten_takes_several_receives(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    await q.send(*(str(i) for i in range(37)))
    await start_source(q, invoker, batch_size=25)
    await until(q.is_empty)
    assert [len(batch) for batch in invoker.batches] == [25, 12]


@pytest.mark.parametrize("prompt", [True, False])
async def test_a_disabled_source_takes_nothing_until_it_is_enabled(
    queue: MakeQueue, start_source: Start, prompt: bool
) -> None:
    q, invoker = queue(), Recorder()
    source = await start_source(q, invoker, enabled=False, prompt_long_polls=prompt)
    await q.send("one")
    await asyncio.sleep(0.15)
    assert (invoker.bodies, await q.counts()) == ([], (1, 0))
    source.enabled = True
    await until(q.is_empty)
    source.enabled = False
    await asyncio.sleep(0.05)
    await q.send("two")
    await asyncio.sleep(0.15)
    assert (invoker.bodies, await q.counts()) == (["one"], (1, 0))
    source.enabled = True
    await until(q.is_empty)
    counts = {r["attributes"]["ApproximateReceiveCount"] for batch in invoker.batches for r in batch}
    assert (invoker.bodies, counts) == (["one", "two"], {"1"})


@pytest.mark.fault("F66")
async def test_stopping_returns_undelivered_messages_to_the_queue(queue: MakeQueue) -> None:
    q, invoker = queue(), Recorder()
    await q.send("a", "b", "c")
    source = q.source(invoker, window_s=20.0)
    await source.start()

    async def taken() -> bool:
        return await q.counts() == (0, 3)

    await until(taken)
    await source.stop()
    assert (invoker.batches, source.stats().given_back) == ([], 3)
    assert await q.counts() == (3, 0)


@pytest.mark.fault("F66")
async def test_stopping_waits_for_invocations_and_deletes(queue: MakeQueue) -> None:
    release = asyncio.Event()

    async def wait(_records: list[Record]) -> InvokeResult:
        await release.wait()
        return InvokeResult(b"null")

    q, invoker = queue(), Recorder(wait)
    await q.send("a")
    source = q.source(invoker)
    await source.start()
    await until(lambda: invoker.running)
    stopping = asyncio.create_task(source.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    release.set()
    await stopping
    assert await q.is_empty()


async def test_stopping_leaves_an_invocation_that_takes_too_long(queue: MakeQueue) -> None:
    async def hang(_records: list[Record]) -> InvokeResult:
        await asyncio.Event().wait()
        raise AssertionError

    q, invoker = queue(), Recorder(hang)
    await q.send("a")
    source = q.source(invoker)
    await source.start()
    await until(lambda: invoker.running)
    await source.stop(grace_s=0.05)
    assert (invoker.running, await q.counts()) == (0, (0, 1))


async def test_a_throttled_batch_is_tried_again_while_it_is_hidden(
    queue: MakeQueue, start_source: Start
) -> None:
    tries = 0

    async def third_time(_records: list[Record]) -> InvokeResult:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Throttled
        return InvokeResult(b"null")

    q, invoker = queue(), Recorder(third_time)
    await q.send("a")
    source = await start_source(q, invoker)
    await until(q.is_empty)
    assert (source.stats().throttles, tries) == (2, 3)
    assert {b[0]["attributes"]["ApproximateReceiveCount"] for b in invoker.batches} == {"1"}


async def test_throttling_past_the_visibility_burns_receives(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(visibility_s=1), Recorder(_throttle)
    await q.send("a")
    source = await start_source(q, invoker)
    await until(lambda: invoker.batches[-1:] and _receive_count(invoker) == 2)
    assert source.stats().allowed == 1
    await source.stop()
    assert await q.counts() == (1, 0)  # not delivered, so made visible again


def _receive_count(invoker: Recorder) -> int:
    return int(invoker.batches[-1][0]["attributes"]["ApproximateReceiveCount"])


async def test_an_invoker_that_breaks_counts_as_a_function_error(
    queue: MakeQueue, start_source: Start
) -> None:
    async def unknown(_records: list[Record]) -> InvokeResult:
        raise KeyError("Function")

    q = queue()
    await q.send("a")
    source = await start_source(q, Recorder(unknown))
    await until(lambda: source.stats().function_errors == 1)
    assert await q.counts() == (0, 1)


async def test_a_visibility_below_the_function_timeout_is_refused(queue: MakeQueue) -> None:
    q = queue(visibility_s=5)
    source = q.source(Recorder(), function_timeout_s=6)
    with pytest.raises(VisibilityTooShort, match="5 s"):
        await source.start()
    await source.stop()


@pytest.mark.fault("F24")
async def test_a_source_survives_an_endpoint_that_refuses(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    source = await start_source(q, invoker, prompt_long_polls=False)
    url, source._client._queue_url = source._client._queue_url, q.url + "-gone"
    await until(lambda: source.stats().receive_errors >= 2)
    source._client._queue_url = url
    await q.send("after")
    await until(q.is_empty)
    assert invoker.bodies == ["after"]


async def test_a_nudge_makes_a_short_polling_source_ask_often(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    source = await start_source(q, invoker, prompt_long_polls=False)
    await asyncio.sleep(0.3)
    idle = source.stats().receives
    assert idle <= 5
    source.nudge()
    await asyncio.sleep(0.3)
    assert source.stats().receives - idle >= 10


async def test_batches_fill_when_messages_come_quickly(queue: MakeQueue, start_source: Start) -> None:
    q, invoker = queue(), Recorder()
    source = await start_source(q, invoker)
    await asyncio.gather(*(q.send(str(i)) for i in range(100)))
    await until(q.is_empty)
    # The queue applies a delete a moment before its response reaches the source.
    await until(lambda: source.stats().deleted >= 100)
    stats = source.stats()
    assert (stats.messages, stats.deleted) == (100, 100)
    assert stats.invocations < 60


@pytest.mark.parametrize(("pollers", "alone", "together"), [(1, 1, 11), (5, 5, 7)])
async def test_five_pollers_deliver_smaller_batches_than_one(
    queue: MakeQueue,
    start_source: Start,
    pollers: int,
    alone: int,
    together: int,
) -> None:
    """Messages that come one by one, to a function that takes its time."""
    q, released = queue(), asyncio.Event()

    async def wait(_records: list[Record]) -> InvokeResult:
        await released.wait()
        return InvokeResult(b"null")

    invoker = Recorder(wait)
    await start_source(q, invoker, polling=LongPolling(0.0), pollers=pollers, maximum_concurrency=5)
    for number in range(alone):
        await q.send(str(number))
        await until(lambda number=number: len(invoker.bodies) == number + 1)
    await q.send(*map(str, range(alone, 12)))
    # No further invocation may follow, so none of the pollers takes them.
    assert await q.counts() == (together, alone)
    released.set()
    await until(q.is_empty)
    sizes = [len(batch) for batch in invoker.batches]
    assert (sizes[:alone], sum(sizes[alone:])) == ([1] * alone, together)
    assert invoker.most_running == alone


async def test_five_pollers_wait_beside_each_other_and_stop_together(
    queue: MakeQueue, start_source: Start
) -> None:
    q, invoker = queue(), Recorder()
    source = await start_source(q, invoker, polling=LongPolling(0.0), pollers=5)
    await q.send(*map(str, range(30)))
    await until(q.is_empty)
    assert sorted(invoker.bodies, key=int) == list(map(str, range(30)))
    before = q.requests("ReceiveMessage")
    source.enabled = False
    await q.send("later")
    source.enabled = True
    await until(lambda: "later" in invoker.bodies)
    # All five ask again.
    await until(lambda: q.requests("ReceiveMessage") >= before + 5)
