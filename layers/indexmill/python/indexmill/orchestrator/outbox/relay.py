"""Outbox relay: send committed messages to their stages' queues, at least once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import StageFailure, StageResult, stage_result
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.platform.aws.sqs_queue import MESSAGE_BYTES, Queue
from indexmill.platform.meter import METER, sends
from indexmill.platform.observability import Observability

RecordResults = Callable[[Sequence[StageResult]], list[OutboxRow]]


@dataclass(frozen=True, slots=True)
class Relay:
    """Sends outbox rows that this process has claimed. What fails stays for the sweeper."""

    store: JobStore
    queues: Mapping[str, Queue]
    """By stage name."""
    apply: RecordResults
    """Fails the jobs of messages that no queue takes; returns the rows that follow."""
    observability: Observability

    def send(self, rows: Sequence[OutboxRow]) -> None:
        """Send rows, one batch per stage, and mark which are sent. Never raises for an outage.

        The jobs that were admitted with them are counted here, where each of them passes once; sent again by
        the sweeper, a message is not counted.
        """
        while rows:
            if admitted := sum(row.admits for row in rows):
                by = self.observability.function
                self.observability.count("jobs_admitted_total", admitted, function=by)
            too_large = [row for row in rows if len(row.payload.encode()) > MESSAGE_BYTES]
            by_stage: dict[str, list[OutboxRow]] = defaultdict(list)
            for row in rows:
                if row not in too_large:
                    by_stage[row.stage].append(row)
            sent = [row_id for stage, group in by_stage.items() for row_id in self._send(stage, group)]
            if sent:
                self._mark_sent(sent)
            rows = self._fail(too_large)

    def _send(self, stage: str, group: Sequence[OutboxRow]) -> list[str]:
        """Return the ids of the rows that the stage's queue took; the send is on their jobs' receipts."""
        METER.paid(sends([len(row.payload.encode()) for row in group]))
        try:
            refused = set(
                self.queues[stage].send([row.payload for row in group], [row.caller_id for row in group])
            )
        except TransientError as error:
            self._mark_failed([row.id for row in group], error.code, unavailable=True)
            return []
        if refused:
            self._mark_failed([group[at].id for at in sorted(refused)], ErrorCode.QUEUE_UNAVAILABLE)
        return [row.id for at, row in enumerate(group) if at not in refused]

    def _fail(self, rows: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
        """Fail the jobs of messages larger than a queue takes: waiting does not make them smaller."""
        if not rows:
            return []
        try:
            following = self.apply([_refused(row) for row in rows])
        except TransientError:
            # Their claim expires and the sweeper tries the same.
            return []
        self._mark_sent([row.id for row in rows])
        return following

    def _mark_sent(self, ids: Sequence[str]) -> None:
        try:
            self.store.mark_sent(ids)
        except TransientError:
            # The messages are sent; unmarked rows are sent again later, a copy that the fence ignores.
            return

    def _mark_failed(self, ids: Sequence[str], error: str, *, unavailable: bool = False) -> None:
        try:
            self.store.mark_failed(ids, error, unavailable=unavailable)
        except TransientError:
            # Their claim expires by itself and the sweeper takes them.
            return


def _refused(row: OutboxRow) -> StageResult:
    failure = StageFailure(
        code=ErrorCode.MESSAGE_TOO_LARGE, message="The work item is larger than a message may be."
    )
    return stage_result(
        message_id=f"{row.id}:refused",
        job_id=row.job_id,
        attempt=row.attempt,
        stage=row.stage,
        status="failed",
        failure=failure,
    )
