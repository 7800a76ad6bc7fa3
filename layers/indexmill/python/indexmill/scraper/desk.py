"""Where the pages of one batch come in, and reports about them go out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import ScrapeTask, StageResult, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Wait
from indexmill.platform.consumer.settling import SourceQueue
from indexmill.platform.queues import Queue

_LOG: Final = logging.getLogger(__name__)
_RESEND_AFTER_S: Final = 1.0


class Desk:
    """Collects outcomes by position; `flush` reports what has come in so far and deletes its messages.

    `put` and `flush` may run at the same time: what comes in during a flush goes with the next.
    """

    def __init__(
        self, deliveries: Sequence[Delivery[ScrapeTask]], callbacks: Queue, source: SourceQueue
    ) -> None:
        """Nothing has come in."""
        self.deliveries = deliveries
        self._callbacks = callbacks
        self._source = source
        self._outcomes: dict[int, Outcome] = {}
        self._reports: dict[int, StageResult] = {}
        self._unsettled: list[int] = []

    def put(self, position: int, outcome: Outcome, report: StageResult | None) -> None:
        """Take what became of one delivery; a report that belongs to no job is told to nobody."""
        if report is not None and report.job_id is not None:
            self._reports[position] = report
        self._outcomes[position] = outcome
        self._unsettled.append(position)

    def flush(self) -> None:
        """Report and delete what is finished, while other pages are still loading."""
        came, self._unsettled = self._unsettled, []
        self._send(came)
        receipts = [self.deliveries[at].receipt for at in came if isinstance(self._outcomes[at], Done)]
        if receipts:
            try:
                self._source.delete(receipts)
            except TransientError:
                # They leave the queue with the batch's answer.
                _LOG.warning("finished messages were not deleted", exc_info=True)

    def close(self) -> list[Outcome]:
        """Report the rest and return one outcome per delivery, in order."""
        self._send(self._unsettled)
        return [self._outcomes[at] for at in range(len(self.deliveries))]

    def _send(self, positions: Sequence[int]) -> None:
        sending = sorted(at for at in positions if at in self._reports)
        if not sending:
            return
        try:
            refused: Sequence[int] = self._callbacks.send([write(self._reports[at]) for at in sending])
        except TransientError as error:
            _LOG.warning("results were not sent: %s", error.code)
            refused = range(len(sending))
        for at in refused:
            delivery = self.deliveries[sending[at]]
            if isinstance(self._outcomes[sending[at]], Done):
                wait = delivery.wait(_RESEND_AFTER_S)
                self._outcomes[sending[at]] = Wait(wait, ErrorCode.QUEUE_UNAVAILABLE)
