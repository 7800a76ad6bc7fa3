"""Queue depths."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from local.triggers.sqs_client import SqsClient, SqsError

_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Messages of a queue, as SQS counts them."""

    visible: int
    in_flight: int
    delayed: int
    oldest_s: float | None = None
    """Age of the oldest message in seconds, as CloudWatch's ApproximateAgeOfOldestMessage; 0 when
    there is none, None where the endpoint does not support it.
    """

    def as_dict(self) -> dict[str, int | float | None]:
        """Return counts and age by name."""
        return asdict(self)


class Queues:
    """The queues of a stack by logical id; `endpoint` is an SQS endpoint on plain HTTP."""

    def __init__(self, endpoint: str, resources: Mapping[str, str], *, region: str) -> None:
        """`resources` are physical ids by logical id; those that are URLs are queues."""
        self._clients = {
            name: SqsClient(endpoint, url, region=region)
            for name, url in resources.items()
            if url.startswith("http")
        }

    async def read(self) -> dict[str, QueueDepth]:
        """Return depths by logical id; queues that do not answer in time are left out."""
        found = await asyncio.gather(*(self._depth(client) for client in self._clients.values()))
        return {name: depth for name, depth in zip(self._clients, found, strict=True) if depth is not None}

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()

    async def _depth(self, client: SqsClient) -> QueueDepth | None:
        with contextlib.suppress(SqsError, OSError, KeyError, ValueError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                return QueueDepth(*await client.depths())
        return None
