"""Queues on a running MiniStack and invokers that record their events."""

from __future__ import annotations

import asyncio
import functools
import json
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import boto3
import httpx

from local.template.spec import InvokeResult, SqsSourceSpec
from local.triggers.sqs import SqsEventSource
from tests.support.ministack import ACCOUNT, REGION

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

Record = dict[str, Any]
Handler = Callable[[list[Record]], Awaitable[InvokeResult]]


async def until(condition: Callable[[], Any], limit_s: float = 8.0) -> None:
    """Wait until `condition` is true. Raises AssertionError after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        held = condition()
        if asyncio.iscoroutine(held):
            held = await held
        if held:
            return
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)


@functools.cache
def _sqs(endpoint: str) -> SQSClient:
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION)
    return session.client("sqs", endpoint_url=endpoint)


class Queue:
    """A new queue; `attributes` as SQS names them."""

    def __init__(self, endpoint: str, **attributes: str) -> None:
        self._sqs = _sqs(endpoint)
        self.endpoint = endpoint
        name = f"q-{uuid.uuid4().hex[:12]}"
        self.url = self._sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]
        self.arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def requests(self, operation: str) -> int:
        """Return how many requests of an operation, to any queue, the endpoint answered so far."""
        found = httpx.get(f"{self.endpoint}/_local/requests").json()
        return int(found.get(f"sqs:{operation}", {"requests": 0})["requests"])

    async def send(self, *bodies: str, **fields: Any) -> None:
        for start in range(0, len(bodies), 10):
            part = bodies[start : start + 10]
            entries: list[Any] = [
                {"Id": str(i), "MessageBody": body, **fields} for i, body in enumerate(part)
            ]
            answer = await asyncio.to_thread(self._sqs.send_message_batch, QueueUrl=self.url, Entries=entries)
            assert not answer.get("Failed")

    async def counts(self) -> tuple[int, int]:
        """Return the numbers of visible and of hidden messages."""
        answer = await asyncio.to_thread(
            self._sqs.get_queue_attributes, QueueUrl=self.url, AttributeNames=["All"]
        )
        found = answer["Attributes"]
        visible = int(found["ApproximateNumberOfMessages"])
        return visible, int(found["ApproximateNumberOfMessagesNotVisible"])

    async def is_empty(self) -> bool:
        return await self.counts() == (0, 0)

    async def set_visibility(self, seconds: int) -> None:
        await asyncio.to_thread(
            self._sqs.set_queue_attributes,
            QueueUrl=self.url,
            Attributes={"VisibilityTimeout": str(seconds)},
        )

    async def hide(self, receipt_handle: str, seconds: int) -> None:
        await asyncio.to_thread(
            self._sqs.change_message_visibility,
            QueueUrl=self.url,
            ReceiptHandle=receipt_handle,
            VisibilityTimeout=seconds,
        )

    async def take(self) -> list[Any]:
        """Return the messages of one plain receive of ten."""
        answer = await asyncio.to_thread(
            self._sqs.receive_message,
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=0,
            MessageSystemAttributeNames=["All"],
        )
        return list(answer.get("Messages", []))

    def source(self, invoker: Recorder, **spec: Any) -> SqsEventSource:
        """Return an event source on this queue; arguments of the source or of its spec."""
        own = ("prompt_long_polls", "polling", "function_timeout_s", "pollers", "code_version")
        arguments = {"prompt_long_polls": True, "function_timeout_s": 1.0}
        arguments |= {k: spec.pop(k) for k in own if k in spec}
        made = SqsSourceSpec("Mapping", "Function", "Queue", **spec)
        return SqsEventSource(
            made,
            self.url,
            self.arn,
            invoker,
            self.endpoint,
            region=REGION,
            **arguments,  # type: ignore[arg-type]
        )


async def succeed(_records: list[Record]) -> InvokeResult:
    return InvokeResult(b"null")


class Recorder:
    """Invoker that records batches, concurrent invocations, and messages in two of them at once."""

    def __init__(self, handler: Handler = succeed) -> None:
        self.handler = handler
        self.batches: list[list[Record]] = []
        self.functions: set[str] = set()
        self.events: list[bytes] = []
        self.running = 0
        self.most_running = 0
        self.live: Counter[str] = Counter()
        self.shared: list[str] = []

    @property
    def bodies(self) -> list[str]:
        return [record["body"] for batch in self.batches for record in batch]

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        records: list[Record] = json.loads(payload)["Records"]
        self.functions.add(function)
        self.events.append(payload)
        self.batches.append(records)
        ids = [record["messageId"] for record in records]
        self.live.update(ids)
        self.shared += [i for i in ids if self.live[i] > 1]
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self.handler(records)
        finally:
            self.running -= 1
            self.live.subtract(ids)


class Timer:
    """Invoker that records the times of its calls, takes `seconds`, then raises `error` if there is one."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.starts: list[float] = []
        self.payloads: list[bytes] = []
        self.running = 0
        self.most_running = 0

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        assert function == "Sweep"
        self.starts.append(time.monotonic())
        self.payloads.append(payload)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        if self.error:
            raise self.error
        return InvokeResult(b"null")


def failures(identifiers: Sequence[Any]) -> InvokeResult:
    """Return a partial batch reply."""
    items = [{"itemIdentifier": identifier} for identifier in identifiers]
    return InvokeResult(json.dumps({"batchItemFailures": items}).encode())
