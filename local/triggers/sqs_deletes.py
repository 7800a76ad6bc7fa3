"""Deletes of processed messages: a request for each batch, as AWS charges them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from local.triggers.sqs_client import SqsClient, SqsError

log = logging.getLogger(__name__)
ATTEMPTS = 3


class Deletes:
    """Deletes the messages of settled batches; `count` is the number deleted so far."""

    def __init__(self, client: SqsClient) -> None:
        self._client = client
        self._calls: set[asyncio.Task[None]] = set()
        self.count = 0

    def add(self, handles: Sequence[str]) -> None:
        """Begin to delete these now."""
        if handles:
            call = asyncio.create_task(self._delete(handles))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def drain(self) -> None:
        """Wait for the calls in flight."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def _delete(self, handles: Sequence[str]) -> None:
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
