"""Lambda proxy integration: invokes the function of a route and converts its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from local.front.events import ENCODER
from local.front.exchange import Exchange
from local.front.gateway_responses import GatewayError
from local.front.replies import MalformedReplyError, Reply, read_reply
from local.template.spec import Invoker, InvokeResult, RouteSpec, Throttled

_MAX_EVENT_BYTES = 6 * 1024 * 1024
_INTERNAL = "Internal server error"


class Integration:
    """Lambda proxy integration of an API, with the gateway's own deadline."""

    def __init__(self, invoker: Invoker, monotonic: Callable[[], float]) -> None:
        self._invoker = invoker
        self._monotonic = monotonic
        self._running: set[asyncio.Task[InvokeResult]] = set()

    async def call(self, route: RouteSpec, event: Mapping[str, Any], exchange: Exchange) -> Reply:
        """Return the function's reply. Raises the GatewayError that API Gateway answers with instead.

        Past `route.timeout_ms` the client gets its 504 while the function continues, as on AWS.
        """
        payload = ENCODER.encode(event).encode()
        if len(payload) > _MAX_EVENT_BYTES:
            raise GatewayError("REQUEST_TOO_LARGE", reason="the event is over Lambda's 6 MB")
        began = self._monotonic()
        try:
            result = await self._invoke(route, payload)
        except GatewayError as error:
            exchange.integration_error = error.reason
            raise
        finally:
            exchange.integration_latency = round((self._monotonic() - began) * 1000)
        exchange.integration_request_id = result.request_id or None
        return _reply(result, exchange)

    async def _invoke(self, route: RouteSpec, payload: bytes) -> InvokeResult:
        task = asyncio.ensure_future(self._invoker.invoke(route.function, payload))
        self._running.add(task)
        task.add_done_callback(self._finished)
        done, _ = await asyncio.wait((task,), timeout=route.timeout_ms / 1000)
        if not done:
            raise GatewayError("INTEGRATION_TIMEOUT", reason="the function did not answer in time")
        try:
            return task.result()
        except Throttled as error:
            # A throttled function is a server error to the client of a proxy integration, never a 429.
            raise GatewayError("DEFAULT_5XX", reason="the function is throttled") from error
        except KeyError as error:
            raise GatewayError("API_CONFIGURATION_ERROR", reason="no such function") from error
        except (OSError, RuntimeError) as error:
            raise GatewayError("INTEGRATION_FAILURE", reason=type(error).__name__) from error

    def _finished(self, task: asyncio.Task[InvokeResult]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: after a time-out nothing else reads it

    async def close(self) -> None:
        """Cancel the calls whose clients no longer wait."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reply(result: InvokeResult, exchange: Exchange) -> Reply:
    if result.function_error is not None:
        exchange.integration_error = f"function error: {result.function_error}"
        raise GatewayError("DEFAULT_5XX", status=502, message=_INTERNAL)
    try:
        reply = read_reply(result.payload)
    except MalformedReplyError as error:
        exchange.integration_error = f"malformed Lambda proxy response: {error}"
        raise GatewayError("DEFAULT_5XX", status=502, message=_INTERNAL) from error
    exchange.integration_status = reply.status
    return reply
