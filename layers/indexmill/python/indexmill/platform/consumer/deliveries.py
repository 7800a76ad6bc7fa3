"""Deliveries: messages as a use case gets them, its outcome for each, and the report of a stage's results."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from indexmill.contracts.cost import Amounts, total
from indexmill.contracts.errors import BreakerOpen, DomainBusy, ErrorCode, IndexmillError, TransientError
from indexmill.contracts.messages import (
    Message,
    Retrying,
    StageFailure,
    StageResult,
    stage_result,
    with_spent,
    write,
)
from indexmill.contracts.pipeline import Stage
from indexmill.platform.aws.sqs_queue import LONGEST_WAIT_S, Queue
from indexmill.platform.meter import METER, Meter, sends, split
from indexmill.platform.time import Clock, RetryPolicy

M = TypeVar("M")
T = TypeVar("T", bound=Message)

_LOG: Final = logging.getLogger(__name__)
_REPORTED_WAIT_S: Final = 30.0
"""Longer waits are reported to the job as `retrying`; so is each failed try, and the first of an outage."""
_RESEND_AFTER_S: Final = 1.0
"""Delay before a delivery whose result could not be sent is processed again."""

MOST_CRASHES: Final = 3
"""A message that was there each time when this many invocations ended is given up."""


@dataclass(frozen=True, slots=True)
class Delivery(Generic[M]):
    """One received message."""

    message: M
    receive_count: int
    """How often the queue has delivered it, this time included; not the number of tries."""
    deadline: float
    """Monotonic second at which the invocation must be finished."""
    tries: int = 1
    """Real tries, this one included; waits and crashes are not counted."""
    crashes: int = 0
    """How many invocations that had it crashed or timed out."""
    last_error: str | None = None
    """Code of the last try that failed."""
    resume: str | None = None
    """As the last delivery's `Wait` said it."""
    receipt: str = ""
    """With it the message can be deleted before the batch is finished."""
    least_wait_s: float = 0.0
    """A wait is at least as long: it grows with the time that the message has been coming back."""

    @property
    def is_suspect(self) -> bool:
        """Return whether it may crash its process."""
        return 0 < self.crashes < MOST_CRASHES

    @property
    def is_poison(self) -> bool:
        """Return whether it must not be tried any more: it crashes its process."""
        return self.crashes >= MOST_CRASHES

    def wait(self, seconds: float) -> float:
        """Return how long it really waits when a use case wants `seconds`."""
        return min(max(seconds, self.least_wait_s), LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class Done:
    """The message's work is finished and reported: it leaves the queue."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A try failed: the message goes back and is seen again after `after_s` seconds."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """It was not tried, through no fault of its own: it goes back, and no try is counted."""

    after_s: float
    reason: str
    resume: str | None = None
    """Begin of its next try, for the use case. May be lost."""
    site: str | None = None
    """Site that it waits for."""


@dataclass(frozen=True, slots=True)
class Poison:
    """The message can never be handled: it goes to the dead letters at once."""

    reason: str


Outcome = Done | Retry | Wait | Poison


BatchUseCase = Callable[[Sequence[Delivery[M]]], Sequence[Outcome]]
"""Handles a whole batch and returns one outcome per delivery, in order. Raises only on a defect."""


_REMEMBERED: Final = 100
_SHARE: Final = 0.5


class RecordTimes:
    """Durations of the last hundred records of this process, to decide whether there is time for another."""

    def __init__(self, guess_s: float) -> None:
        """`guess_s` is used until a record was measured, and is the minimum afterwards."""
        self._guess_s = guess_s
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._whole_s = 0.0

    def begin(self, left_s: float) -> None:
        """Start an invocation with `left_s` seconds left."""
        self._whole_s = max(self._whole_s, left_s)

    def add(self, seconds: float) -> None:
        """Add the duration of one record."""
        self._seconds.append(seconds)

    def suffices(self, left_s: float) -> bool:
        """Return whether a record that begins now is almost certainly finished in `left_s` seconds.

        The longest of a hundred approximates the 99th percentile. Half an invocation always suffices: else
        records as long as an invocation would never be started.
        """
        longest = max(self._guess_s, *self._seconds) if self._seconds else self._guess_s
        return left_s >= min(longest, _SHARE * self._whole_s)


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """A worker's stage, as the reporter needs it."""

    row: Stage
    crash_message: str
    """Failure message of a task whose worker crashed on every try."""
    pauses: frozenset[str] = frozenset()
    """Codes of a dependency that says by `retry_after` when to come back: that wait counts no try."""
    keeps_jobless_failures: bool = False
    """Send a failed task without a job to the dead-letter queue; otherwise it is deleted."""


class BatchReporter(Generic[T]):
    """Buffers the stage results of one batch and flushes them to the callback queue.

    Results are addressed by the delivery's position. `flush` may run in another thread than the methods that
    add results: what is added meanwhile goes with the next flush.
    """

    def __init__(
        self,
        stage: WorkerStage,
        deliveries: Sequence[Delivery[T]],
        callbacks: Queue,
        clock: Clock,
        source: Queue | None = None,
        meter: Meter = METER,
    ) -> None:
        """`source` is needed by `flush` alone, which deletes reported messages before the batch ends."""
        self.deliveries = deliveries
        self._stage = stage
        self._callbacks = callbacks
        self._clock = clock
        self._source = source
        self._meter = meter
        self._batch_started = clock.monotonic()
        self._started: dict[int, float] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._results: dict[int, StageResult] = {}
        self._unsent: list[int] = []
        self._own: dict[int, dict[str, int]] = {}

    def begin(self, position: int) -> None:
        """Measure `elapsed_ms` from now; without it, from the start of the batch."""
        self._started[position] = self._clock.monotonic()

    def add(self, position: int, outcome: Outcome, result: StageResult | None = None) -> None:
        """Buffer the outcome of one delivery, with the result to send if there is one."""
        if result is not None:
            self._results[position] = result
        self._outcomes[position] = outcome
        self._unsent.append(position)

    def spent(self, position: int, **facts: int) -> None:
        """Note what the stage did for this delivery alone: bytes, chunks and tokens, fields of Spent."""
        self._own[position] = facts

    def success(self, position: int, **output: Any) -> None:
        """Report success; `output` is the result's `document`, `chunked` or `embedded`."""
        self.add(position, Done(), self._result(position, status="success", **output))

    def error(self, position: int, error: IndexmillError) -> None:
        """Report a failed try: a retry, a wait without a try, or after the last try the stage's failure."""
        delivery = self.deliveries[position]
        tries, policy = delivery.tries, RetryPolicy.of(self._stage.row)
        what = f"{self._stage.row.name.capitalize()} failed"
        if isinstance(error, BreakerOpen):
            self._retrying(position, Wait(delivery.wait(error.wait_s), error.code), error)
        elif isinstance(error, DomainBusy):
            wait_s = delivery.wait(float(error.retry_after or 1))
            self._retrying(position, Wait(wait_s, error.code, error.resume, error.site), error)
        elif error.retry_after and error.code in self._stage.pauses:
            self._retrying(position, Wait(delivery.wait(float(error.retry_after)), error.code), error)
        elif not error.retryable:
            self.failure(position, StageFailure(code=error.code, message=error.message, tries=tries))
        elif tries < policy.max_tries:
            delay_s = policy.delay(tries, retry_after=error.retry_after)
            self._retrying(position, Retry(delivery.wait(delay_s), error.code), error)
        elif error.code == ErrorCode.INTERNAL_ERROR:
            self.failure(position, StageFailure(code=error.code, message=f"{what} unexpectedly", tries=tries))
        else:
            message = f"{what} after {policy.max_retries} retries"
            code = ErrorCode.MAX_RETRIES_EXCEEDED
            self.failure(position, StageFailure(code=code, message=message, cause=error.code, tries=tries))

    def failure(self, position: int, failure: StageFailure) -> None:
        """Report that the stage failed for good."""
        if self.deliveries[position].message.job_id is None and self._stage.keeps_jobless_failures:
            self.add(position, Poison(failure.cause or failure.code))
            return
        self.add(position, Done(), self._result(position, status="failed", failure=failure))

    def poison(self, position: int) -> None:
        """Report a task whose worker crashed on every try (`Delivery.is_poison`)."""
        delivery = self.deliveries[position]
        timed_out = delivery.last_error == ErrorCode.TIMED_OUT
        known = f" (last error: {delivery.last_error})" if delivery.last_error and not timed_out else ""
        failure = StageFailure(
            code=ErrorCode.POISON_MESSAGE,
            message=self._stage.crash_message + known,
            cause=ErrorCode.TIMED_OUT if timed_out else ErrorCode.WORKER_CRASHED,
            tries=delivery.tries - 1 + delivery.crashes,
        )
        self.failure(position, failure)

    def out_of_time(self, position: int) -> None:
        """Return the message to the queue untried: the invocation has no time left for it."""
        self.add(position, Wait(self.deliveries[position].wait(_RESEND_AFTER_S), "deadline"))

    def flush(self) -> None:
        """Send the buffered results and delete the messages of those that are done."""
        added, self._unsent = self._unsent, []
        self._send(added)
        done = [self.deliveries[at].receipt for at in added if isinstance(self._outcomes[at], Done)]
        if done and self._source is not None:
            try:
                self._source.delete(done)
            except TransientError:
                # They leave the queue with the batch's answer.
                _LOG.warning("finished messages were not deleted", exc_info=True)

    def finish(self) -> list[Outcome]:
        """Send the remaining results and return one outcome per delivery, in order."""
        self._send(self._unsent)
        return [self._outcomes[at] for at in range(len(self.deliveries))]

    def _send(self, positions: Sequence[int]) -> None:
        """Send results; a delivery whose result was not accepted goes back to the queue."""
        sending = sorted({at for at in positions if at in self._results})
        bodies = {at: write(self._results[at]) for at in sending}
        shares = self._shares(positions, bodies)
        if not sending:
            return
        for at, share in shares.items():
            if at in bodies:
                bodies[at] = with_spent(bodies[at], total(self._own.get(at, {}), share))
        try:
            refused: Sequence[int] = self._callbacks.send(list(bodies.values()))
        except TransientError as error:
            _LOG.warning("results were not sent: %s", error.code)
            refused = range(len(sending))
        for at in (sending[each] for each in refused):
            if isinstance(self._outcomes[at], Done):
                self._meter.add(shares[at])
                wait_s = self.deliveries[at].wait(_RESEND_AFTER_S)
                self._outcomes[at] = Wait(wait_s, ErrorCode.QUEUE_UNAVAILABLE)

    def _shares(self, positions: Sequence[int], bodies: Mapping[int, str]) -> dict[int, Amounts]:
        """Share what is due, and the send of `bodies`, out among the deliveries that are done now.

        One without a job has its share too, which no receipt has. What a returned message used is due later.
        """
        done = sorted({at for at in positions if isinstance(self._outcomes[at], Done)})
        if not done:
            return {}
        # Those that are still in progress have their share of the invocation too.
        part = len(done) / (len(done) + len(self.deliveries) - len(self._outcomes))
        due = {name: amount * part for name, amount in self._meter.due().items()}
        amounts = total(due, sends([len(body.encode()) for body in bodies.values()]))
        self._meter.paid(amounts)
        took = [result.elapsed_ms if (result := self._results.get(at)) else 0 for at in done]
        return dict(zip(done, split(amounts, took), strict=True))

    def _retrying(self, position: int, outcome: Retry | Wait, error: IndexmillError) -> None:
        """Return the message to the queue; its job gets an event for a failed try, and for a long wait.

        The first wait for an outage is an event, one for a token of a site only when it is long.
        """
        delivery = self.deliveries[position]
        task, busy = delivery.message, isinstance(error, DomainBusy)
        # A wait counts no try: before the first one, each delivery was a try.
        told = isinstance(outcome, Retry) or (delivery.receive_count == delivery.tries and not busy)
        if task.job_id is None or not (told or outcome.after_s > _REPORTED_WAIT_S):
            self.add(position, outcome)
            return
        result = stage_result(
            # Unique per wait and the same in each copy of it.
            message_id=f"{task.message_id}:retrying:{delivery.receive_count}",
            job_id=task.job_id,
            attempt=task.attempt,
            request_id=task.request_id,
            stage=self._stage.row.name,
            status="retrying",
            retrying=Retrying(
                tries=delivery.tries if isinstance(outcome, Retry) else delivery.tries - 1,
                next_retry_at=self._clock.now() + timedelta(seconds=outcome.after_s),
                retry_in_s=outcome.after_s,
                cause=outcome.reason,
                site=outcome.site if isinstance(outcome, Wait) else None,
                failure=self._failure_now(error),
            ),
        )
        self.add(position, outcome, result)

    def _failure_now(self, error: IndexmillError) -> StageFailure | None:
        """Return what is wrong; None where a site is only busy."""
        if isinstance(error, DomainBusy):
            return StageFailure(code=error.cause, message=error.message) if error.cause else None
        unexpected = error.code == ErrorCode.INTERNAL_ERROR
        message = f"{self._stage.row.name.capitalize()} failed unexpectedly" if unexpected else error.message
        return StageFailure(code=error.code, message=message)

    def _result(self, position: int, **fields: Any) -> StageResult | None:
        """Return the result message; None for a task without a job."""
        delivery = self.deliveries[position]
        task = delivery.message
        if task.job_id is None:
            return None
        started = self._started.get(position, self._batch_started)
        return stage_result(
            # Derived from the task's id, so that results of redelivered copies are applied once.
            message_id=f"{task.message_id}:result",
            job_id=task.job_id,
            attempt=task.attempt,
            request_id=task.request_id,
            stage=self._stage.row.name,
            tries=delivery.tries,
            worker=os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME"),  # None outside Lambda
            elapsed_ms=round((self._clock.monotonic() - started) * 1000),
            **fields,
        )
