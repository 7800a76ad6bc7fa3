"""Batched deletes of processed messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from local.triggers.sqs_client import MAX_PER_CALL, SqsClient, SqsError

log = logging.getLogger(__name__)
GATHER_S = 0.1
"""Longest delay of a delete, so that small batches share a call."""
ATTEMPTS = 3


class Deletes:
    """Gathers receipt handles of processed messages; `count` is the number deleted so far."""

    def __init__(self, client: SqsClient, gather_s: float = GATHER_S) -> None:
        self._client = client
        self._gather_s = gather_s
        self._handles: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.count = 0

    def add(self, handles: Sequence[str]) -> None:
        """Delete these soon: at once when ten are together, else within `gather_s`."""
        self._handles += handles
        if len(self._handles) >= MAX_PER_CALL:
            self._send()
        elif self._handles and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._gather_s, self._send)

    async def drain(self) -> None:
        """Delete the rest and wait for the calls in flight."""
        self._send()
        if self._calls:
            await asyncio.wait(self._calls)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._handles:
            return
        handles, self._handles = self._handles, []
        call = asyncio.create_task(self._delete(handles))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _delete(self, handles: list[str]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                refused = await self._client.delete(handles)
            except (SqsError, OSError) as error:
                if attempt == ATTEMPTS:
                    # They are redelivered after their visibility timeout: SQS delivers at least once.
                    log.warning("%d settled messages could not be deleted: %s", len(handles), error)
                    return
                await asyncio.sleep(0.05 * attempt)
            else:
                self.count += len(handles) - refused
                return
