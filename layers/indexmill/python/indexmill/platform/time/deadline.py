"""The service's own time limit of a synchronous request, shorter than the gateway's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from indexmill.contracts.errors import ErrorCode, TransientError

T = TypeVar("T")


def request_limit(service_limit_s: float, integration_timeout_s: float) -> float:
    """Return the seconds a synchronous request may take: its own limit, and always before the gateway's."""
    return min(service_limit_s, integration_timeout_s - 1)


async def within(seconds: float, work: Awaitable[T], *, message: str, hint: str) -> T:
    """Return what `work` returns, or raise TransientError(deadline_exceeded) (HTTP 504) after `seconds`.

    The work may still be running then: `hint` names the endpoint that does it without a limit.
    """
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError as error:
        raise TransientError(ErrorCode.DEADLINE_EXCEEDED, message, hint=hint) from error
