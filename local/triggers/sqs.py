"""SQS event source mapping: delivers messages of a queue to a function, by AWS's rules.

- A batch has up to `batch_size` messages, gathered for up to `window_s`, and at most 6 MB as an event.
- Success deletes the batch; a function error leaves all of it in the queue until its visibility timeout. With
  `report_batch_item_failures` the messages stay that the function names, and all when the reply is malformed.
  The visibility of a delivered message is never changed: the function may have set it. Only an edit of the
  function, or a failed import, makes the messages of its failed invocations visible (`sqs_failed`).
- A throttled invocation is retried with growing delays until the visibility timeout of its messages.
- At most `maximum_concurrency` invocations are in flight; errors lower it for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from local.template.spec import Invoker, InvokeResult, SqsSourceSpec, Throttled
from local.triggers.sqs_client import MAX_PER_CALL, SqsClient, SqsError
from local.triggers.sqs_deletes import Deletes
from local.triggers.sqs_events import Message, events, failed_ids
from local.triggers.sqs_failed import LOOK_S, FailedMessages
from local.triggers.sqs_polling import Concurrency, LongPolling, Polling, ShortPolling

log = logging.getLogger(__name__)

WINDOW_POLL_S = 0.1
"""Polling interval of a batch that is being gathered."""
RECEIVE_BACKOFF_S = (0.1, 2.0)
THROTTLE_BACKOFF_S = (0.1, 5.0)
LOOK_AFTER_S = 0.5
"""Pause between looks at invocations of which none ends."""


class VisibilityTooShort(ValueError):
    """Raised when the queue's visibility timeout is shorter than the function's; AWS rejects that too."""


@dataclass(slots=True)
class SourceStats:
    """Counters of a source since its start, except the last two."""

    receives: int = 0
    empty_receives: int = 0
    messages: int = 0
    invocations: int = 0
    function_errors: int = 0
    throttles: int = 0
    item_failures: int = 0
    deleted: int = 0
    given_back: int = 0
    receive_errors: int = 0
    in_flight: int = 0
    """Invocations in flight now."""
    allowed: int = 0
    """Current limit of invocations in flight."""


class SqsEventSource:
    """One event source mapping; `endpoint` is an SQS endpoint on plain HTTP.

    With `prompt_long_polls` the endpoint answers waiting receives as soon as a message arrives; then one
    receive always waits there. Otherwise the queue is polled every few milliseconds while busy and ten times
    a second when idle, and `nudge` announces likely traffic.

    With several `pollers` as many receives wait there beside each other, no more than invocations may follow,
    and each delivers what it got: batches are smaller.
    """

    def __init__(  # noqa: PLR0913 - parameters of a mapping
        self,
        spec: SqsSourceSpec,
        queue_url: str,
        queue_arn: str,
        invoker: Invoker,
        endpoint: str,
        *,
        region: str,
        function_timeout_s: float,
        prompt_long_polls: bool = False,
        polling: Polling | None = None,
        client: SqsClient | None = None,
        idle: Callable[[], float | None] = lambda: 1.0,
        pollers: int = 1,
        code_version: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`idle` is the machine's share of idle CPU lately, None when it was asked a moment ago.

        `code_version` grows with each edit of the function; it is None where edits are not watched.
        """
        self.spec = spec
        self.queue_arn = queue_arn
        self._region = region
        self._invoker = invoker
        self._function_timeout_s = function_timeout_s
        self._client = client or SqsClient(endpoint, queue_url, region=region)
        self._deletes = Deletes(self._client)
        self._failed = FailedMessages(code_version)
        self._edits: asyncio.Task[None] | None = None
        self._polling: Polling = polling or (LongPolling() if prompt_long_polls else ShortPolling())
        self._concurrency = Concurrency(spec.maximum_concurrency, idle, start=pollers)
        self._stats = SourceStats()
        self._enabled = spec.enabled
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._pollers = pollers
        self._loops: list[asyncio.Task[None]] = []
        self._gathering = 0
        """Pollers that gather a batch now."""
        self._polls: set[asyncio.Task[list[Message]]] = set()
        self._deliveries: set[asyncio.Task[None]] = set()

    @property
    def enabled(self) -> bool:
        """Return whether it polls; disabling it lets invocations in flight finish."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value
        self._interrupt()

    @property
    def busy(self) -> bool:
        """Return whether invocations are in flight."""
        return bool(self._deliveries)

    def configure(self, spec: SqsSourceSpec) -> None:
        """Replace batch settings and concurrency, from the next receive on."""
        self.spec = spec
        self._concurrency.limit(spec.maximum_concurrency)
        self._changed.set()

    async def start(self) -> None:
        """Start polling. Raises VisibilityTooShort."""
        visibility = await self._client.visibility_s()
        if visibility < self._function_timeout_s:
            raise VisibilityTooShort(
                f"{self.spec.logical_id}: queue {self.spec.queue} hides messages for {visibility} s, "
                f"less than the {self._function_timeout_s:g} s timeout of {self.spec.function}"
            )
        name = f"sqs-{self.spec.logical_id}"
        self._loops = [asyncio.create_task(self._run(), name=name) for _ in range(self._pollers)]

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop polling, return undelivered messages, and wait `grace_s` for invocations in flight.

        Messages of invocations that are cancelled then stay hidden until their visibility timeout. Those of
        failed ones are returned: the code may be edited before the next start, which cannot notice that.
        """
        self._stopping.set()
        self._interrupt()
        await asyncio.gather(*self._loops)
        if self._edits is not None:
            self._edits.cancel()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=grace_s)
            for delivery in late:
                delivery.cancel()
            if late:
                await asyncio.wait(late)
        await self._return(self._failed.all())
        await self._deletes.drain()
        self._client.close()

    def nudge(self) -> None:
        """Announce that a message is likely to arrive soon; cheap and idempotent."""
        self._polling.nudged()
        if not self._polling.wait_s:
            self._changed.set()

    def stats(self) -> SourceStats:
        """Return a copy of the counters."""
        current = {"in_flight": len(self._deliveries), "allowed": self._concurrency.allowed}
        return replace(self._stats, deleted=self._deletes.count, **current)

    def _interrupt(self) -> None:
        self._changed.set()
        if not self._taking:
            for poll in self._polls:
                poll.cancel()

    @property
    def _taking(self) -> bool:
        return self._enabled and not self._stopping.is_set()

    async def _pause(self, seconds: float | None) -> None:
        """Wait until something changes, or `seconds`."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _run(self) -> None:
        backoff = RECEIVE_BACKOFF_S[0]
        while not self._stopping.is_set():
            if not self._taking:
                await self._pause(None)
                continue
            if len(self._deliveries) + self._gathering >= self._concurrency.allowed:
                await self._until_one_ends()
                continue
            due = self._polling.pause_s(in_flight=bool(self._deliveries))
            if (pause := max(due, self._failed.pause_s())) > 0:
                await self._pause(pause)
                continue
            self._gathering += 1
            try:
                batch = await self._gather()
            except (SqsError, OSError) as error:
                self._stats.receive_errors += 1
                log.warning("%s cannot receive: %s", self.spec.logical_id, error)
                await self._pause(backoff)
                backoff = min(2 * backoff, RECEIVE_BACKOFF_S[1])
                continue
            finally:
                self._gathering -= 1
            backoff = RECEIVE_BACKOFF_S[0]
            self._concurrency.batch(len(batch), self.spec.batch_size)
            if batch and self._taking:
                self._start_delivery(batch)
            elif batch:
                await self._give_back(batch)

    async def _until_one_ends(self) -> None:
        """Wait for an end; invocations of which none ends may wait for others and leave room for one more."""
        began = time.monotonic()
        await self._pause(LOOK_AFTER_S)
        waited = time.monotonic() - began
        if waited >= LOOK_AFTER_S and self._taking:
            self._concurrency.waited(waited)

    async def _gather(self) -> list[Message]:
        """Return one batch, possibly empty."""
        size = self.spec.batch_size
        batch = await self._receive(size, self._polling.wait_s)
        self._polling.received(len(batch), min(size, MAX_PER_CALL))
        closes = time.monotonic() + self.spec.window_s
        more = len(batch) == MAX_PER_CALL or bool(batch and self.spec.window_s)
        while more and len(batch) < size and self._taking:
            try:
                found = await self._receive(size - len(batch), 0)
            except (SqsError, OSError) as error:
                log.warning("%s delivers a batch that is not full: %s", self.spec.logical_id, error)
                break
            batch += found
            left = closes - time.monotonic()
            full = len(found) == MAX_PER_CALL
            more = full or left > 0
            if more and not full and len(batch) < size:
                await self._pause(min(left, WINDOW_POLL_S))
        return batch

    async def _receive(self, limit: int, wait_s: int) -> list[Message]:
        """Receive up to ten messages; none when the source is stopped or disabled while waiting."""
        if wait_s:
            # A separate task can be cancelled without losing a response that has arrived already.
            poll = asyncio.create_task(self._client.receive(limit, wait_s))
            self._polls.add(poll)
            await asyncio.wait({poll})
            self._polls.discard(poll)
            found = [] if poll.cancelled() else poll.result()
        else:
            found = await self._client.receive(limit)
        self._stats.receives += 1
        self._stats.messages += len(found)
        self._stats.empty_receives += not found
        return found

    def _start_delivery(self, batch: list[Message]) -> None:
        delivery = asyncio.create_task(self._deliver(batch))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._delivered)

    def _delivered(self, delivery: asyncio.Task[None]) -> None:
        self._deliveries.discard(delivery)
        self._changed.set()
        if not delivery.cancelled() and (error := delivery.exception()):
            log.error("%s: a delivery failed", self.spec.logical_id, exc_info=error)

    async def _deliver(self, batch: list[Message]) -> None:
        received = time.monotonic()
        version = self._failed.version()
        for messages, event in events(self._failed.counted(batch), self.queue_arn, self._region):
            result = await self._invoke(event, received)
            if result is None:
                if self._stopping.is_set():
                    await self._give_back(messages)
                continue
            settled = self._settled(messages, result)
            self._stats.item_failures += len(messages) - len(settled)
            self._failed.discard(settled)
            self._deletes.add([message["ReceiptHandle"] for message in settled])
            if result.function_error:
                await self._failed_with(messages, version, import_failed=result.import_failed)

    async def _failed_with(
        self, messages: list[Message], version: int | None, *, import_failed: bool
    ) -> None:
        """Give messages of a failed invocation back: now, or after the next edit."""
        self._failed.add(messages, version)
        if import_failed:
            await self._return(self._failed.import_failed(messages, version))
        if self._failed.awaits_edit and (self._edits is None or self._edits.done()):
            self._edits = asyncio.create_task(self._give_back_after_edits())

    async def _give_back_after_edits(self) -> None:
        while self._failed.awaits_edit:
            await asyncio.sleep(LOOK_S)
            await self._return(self._failed.edited())
            self._changed.set()

    def _settled(self, messages: list[Message], result: InvokeResult) -> list[Message]:
        if result.function_error:
            self._stats.function_errors += 1
            # Partial-batch mode has no back-off: the function reports the failures itself.
            if not self.spec.report_batch_item_failures:
                self._concurrency.failed()
            return []
        self._concurrency.succeeded()
        self._failed.imported()
        if not self.spec.report_batch_item_failures:
            return messages
        failed = failed_ids(result.payload, [message["MessageId"] for message in messages])
        return [message for message in messages if message["MessageId"] not in failed]

    async def _invoke(self, event: bytes, received: float) -> InvokeResult | None:
        """Return the function's result, or None when it was throttled until the visibility timeout."""
        backoff = THROTTLE_BACKOFF_S[0]
        while True:
            try:
                self._stats.invocations += 1
                return await self._invoker.invoke(self.spec.function, event)
            except Throttled:
                self._stats.throttles += 1
                self._concurrency.failed()
            except Exception as error:  # any error of the host must not end the source
                log.exception("%s cannot invoke %s", self.spec.logical_id, self.spec.function)
                return InvokeResult(str(error).encode(), "Unhandled")
            if self._stopping.is_set() or time.monotonic() + backoff - received >= await self._visibility():
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff)
                return None
            backoff = min(2 * backoff, THROTTLE_BACKOFF_S[1])

    async def _visibility(self) -> float:
        """Return the current visibility timeout; zero, which gives up, when it cannot be read."""
        with contextlib.suppress(SqsError, OSError):
            return float(await self._client.visibility_s())
        return 0.0

    async def _give_back(self, messages: list[Message]) -> None:
        await self._return([message["ReceiptHandle"] for message in messages])

    async def _return(self, receipts: list[str]) -> None:
        if not receipts:
            return
        self._stats.given_back += len(receipts)
        with contextlib.suppress(SqsError, OSError):
            await self._client.give_back(receipts)
