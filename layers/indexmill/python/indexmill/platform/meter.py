"""Meter: counts what this process uses of what AWS bills, and shares it out among jobs.

Everything is counted when it happens. When results are sent, or jobs are written, what is due is shared out
among them, so all shares of an environment sum up to what it used. What comes after (the rest of the send,
returned messages, the invocation's end) is due with the next ones. The requests that carry the shares
themselves, and the rest of the invocation, are known in advance: they are paid with the shares, and are no
longer due when they happen.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from indexmill.contracts.cost import SHARED, Amounts
from indexmill.platform.time import Clock, SystemClock

SQS_UNIT_BYTES: Final = 64 * 1024
_RECEIVED_AT_ONCE: Final = 10
_REST_GUESS_S: Final = 0.005
"""Rest of an invocation after its shares were made, until one was measured."""
_MEMORY: Final = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
_S3_READS: Final = frozenset(("GetObject", "HeadObject"))
_DYNAMODB_READS: Final = frozenset(("GetItem", "BatchGetItem", "Query", "Scan"))
_DIGITS: Final = 6
_BATCH: Final = 10
_BATCH_BYTES: Final = 1_000_000
"""SQS refuses a batch of more than 1 MiB in sum; some room is left for its envelope."""
_FIRST_BYTES: Final = 500
"""About the size of a first message, which is a URL. What a retried job starts with may be larger: its
further 64 KiB are on no receipt."""


class Meter:
    """Counts between the begin and the end of an invocation; safe in threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Nothing is due."""
        self._clock = clock or SystemClock()
        self._due: Amounts = dict.fromkeys(SHARED, 0.0)
        self._lock = threading.Lock()
        self._gb = 0.0
        self._began: float | None = None
        self._counted_until = 0.0
        self._shared_at: float | None = None
        self._rest_s = _REST_GUESS_S

    def begin(self, bodies: Sequence[str]) -> None:
        """Begin an invocation with received messages; their receive and their delete are counted now."""
        calls = -(-len(bodies) // _RECEIVED_AT_ONCE)
        received = sum(len(body.encode()) for body in bodies)
        self._begin()
        units = calls + max(calls, -(-received // SQS_UNIT_BYTES))
        self.add({"invocations": 1, "sqs_requests": 2 * calls, "sqs_units": units})

    def begin_request(self) -> None:
        """Begin the invocation of an HTTP request; what is left of the one before belongs to no job."""
        with self._lock:
            self._due = dict.fromkeys(SHARED, 0.0)
        self._begin()
        self.add({"invocations": 1, "api_requests": 1})

    def end(self, *, deleted: bool = True) -> None:
        """End the invocation; its time is billed in whole milliseconds. Not `deleted`: all messages stay."""
        if self._began is None:
            return
        now = self._count_time()
        took_ms = (now - self._began) * 1000
        self.add({"gb_s": (math.ceil(took_ms) - took_ms) / 1000 * self._gb})
        if not deleted:
            self.add({"sqs_requests": -1, "sqs_units": -1})
        if self._shared_at is not None:
            self._rest_s = now - self._shared_at
        self._began = None

    def request(self, service: str, operation: str) -> None:
        """Count one HTTP request to an AWS service."""
        if service == "sqs":
            self.add({"sqs_requests": 1, "sqs_units": 1})
        elif service == "s3":
            self.add({"s3_reads" if operation in _S3_READS else "s3_writes": 1})
        elif service == "dynamodb":
            kind = "dynamodb_reads" if operation in _DYNAMODB_READS else "dynamodb_writes"
            self.add({"dynamodb_requests": 1, kind: 1})

    def add(self, amounts: Mapping[str, float]) -> None:
        """Count `amounts`, unless no invocation runs: a cold start belongs to no job."""
        if self._began is None:
            return
        with self._lock:
            for name, amount in amounts.items():
                self._due[name] += amount

    def due(self) -> Amounts:
        """Return what is due now, with the expected rest of the invocation. Changes nothing that is due."""
        if self._began is None:
            return dict.fromkeys(SHARED, 0.0)
        self._shared_at = self._count_time()
        with self._lock:
            found = {name: max(0.0, amount) for name, amount in self._due.items()}
            found["gb_s"] = max(0.0, self._due["gb_s"] + self._rest_s * self._gb)
        return found

    def paid(self, amounts: Mapping[str, float]) -> None:
        """Note that jobs have `amounts` on their receipts."""
        self.add({name: -amount for name, amount in amounts.items()})

    def _begin(self) -> None:
        self._gb = int(os.environ.get(_MEMORY, "0")) / 1024
        self._began = self._counted_until = self._clock.monotonic()
        self._shared_at = None

    def _count_time(self) -> float:
        with self._lock:
            now = self._clock.monotonic()
            self._due["gb_s"] += (now - self._counted_until) * self._gb
            self._counted_until = now
        return now


METER: Final = Meter()
"""Of this process, as the AWS clients are: an execution environment handles one event at a time."""


def batches(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the positions of messages of so many bytes, by the request that sends them."""
    batch: list[int] = []
    whole = 0
    for position, size in enumerate(sizes):
        if batch and (len(batch) == _BATCH or whole + size > _BATCH_BYTES):
            yield batch
            batch, whole = [], 0
        batch.append(position)
        whole += size
    if batch:
        yield batch


def sends(sizes: Sequence[int]) -> Amounts:
    """Return the requests in which messages of so many bytes are sent to one queue."""
    found = [sum(sizes[at] for at in batch) for batch in batches(sizes)]
    units = sum(max(1, -(-size // SQS_UNIT_BYTES)) for size in found)
    return {"sqs_requests": len(found), "sqs_units": units}


def first_messages(jobs: int) -> Amounts:
    """Return what each of the jobs that start together pays: a share of the send of their messages."""
    return split(sends([_FIRST_BYTES] * jobs), [1] * jobs)[0]


def split(amounts: Mapping[str, float], weights: Sequence[float]) -> list[Amounts]:
    """Share `amounts` out: compute in proportion to `weights`, everything else equally."""
    whole, count = sum(weights), len(weights)
    equal = {name: round(amount / count, _DIGITS) for name, amount in amounts.items() if amount}
    compute = amounts.get("gb_s", 0.0)
    if not compute:
        return [equal for _ in weights]
    shares = [weight / whole if whole else 1 / count for weight in weights]
    return [{**equal, "gb_s": round(compute * share, _DIGITS)} for share in shares]
