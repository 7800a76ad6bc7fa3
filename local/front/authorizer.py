"""REQUEST authorizer and its cache, as in API Gateway."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from local.front.events import ENCODER, EventBuilder, Headers
from local.front.exchange import Exchange
from local.front.gateway_responses import GatewayError
from local.front.policy import Decision, Policy, PolicyError, read_policy
from local.front.routing import Match
from local.template.spec import AuthorizerSpec, Invoker, InvokeResult, Throttled

_CACHE_ENTRIES = 10_000
_LONGEST_S = 30.0
_DENIED = "User is not authorized to access this resource"


@dataclass(frozen=True, slots=True)
class _Grant:
    """Cached response of an authorizer: valid for every method until it expires."""

    policy: Policy
    values: Mapping[str, str]
    expires: float


class Authorizer:
    """One REQUEST authorizer with its cache. Concurrent requests with the same key share one call."""

    def __init__(
        self, spec: AuthorizerSpec, invoker: Invoker, events: EventBuilder, monotonic: Callable[[], float]
    ) -> None:
        self._spec = spec
        self._invoker = invoker
        self._events = events
        self._monotonic = monotonic
        self._cache: OrderedDict[tuple[tuple[str, ...], ...], _Grant] = OrderedDict()
        self._asking: dict[tuple[tuple[str, ...], ...], asyncio.Task[_Grant]] = {}

    async def authorize(self, exchange: Exchange, match: Match, headers: Headers) -> None:
        """Put the principal and its context into `exchange`. Raises the GatewayError to answer with."""
        key = tuple(tuple(headers.get_all(name)) for name in self._spec.identity_headers)
        if not all(any(values) for values in key):
            raise GatewayError("UNAUTHORIZED", reason="an identity header is missing")
        began = self._monotonic()
        try:
            grant = await self._grant(key, exchange, match, headers)
        except GatewayError as error:
            exchange.authorizer_status = error.status
            exchange.authorizer_error = error.reason
            exchange.authorizer_latency = round((self._monotonic() - began) * 1000)
            raise
        exchange.authorizer_latency = round((self._monotonic() - began) * 1000)
        decision = grant.policy.decide(exchange.api.method_arn(exchange.method, exchange.path))
        exchange.authorizer = grant.values
        exchange.authorizer_status = 200 if decision is Decision.ALLOW else 403
        if decision is not Decision.ALLOW:
            message = f"{_DENIED} with an explicit deny" if decision is Decision.EXPLICIT_DENY else _DENIED
            raise GatewayError("ACCESS_DENIED", message=message, reason=decision.value)

    async def close(self) -> None:
        """Cancel the calls in flight."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _grant(
        self, key: tuple[tuple[str, ...], ...], exchange: Exchange, match: Match, headers: Headers
    ) -> _Grant:
        if not key or self._spec.ttl_s <= 0:
            return await self._ask(exchange, match, headers)
        cached = self._cache.get(key)
        if cached is not None and cached.expires > self._monotonic():
            return cached
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(exchange, match, headers))
            task.add_done_callback(lambda done: self._keep(key, done))
        return await asyncio.shield(task)

    def _keep(self, key: tuple[tuple[str, ...], ...], done: asyncio.Task[_Grant]) -> None:
        """Cache a response, allowing or denying; an error is never cached."""
        self._asking.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self._cache[key] = done.result()
        self._cache.move_to_end(key)
        while len(self._cache) > _CACHE_ENTRIES:
            self._cache.popitem(last=False)

    async def _ask(self, exchange: Exchange, match: Match, headers: Headers) -> _Grant:
        payload = ENCODER.encode(self._events.authorizer_event(exchange, match, headers)).encode()
        try:
            async with asyncio.timeout(_LONGEST_S):
                result = await self._invoker.invoke(self._spec.function, payload)
        except TimeoutError as error:
            raise GatewayError("AUTHORIZER_FAILURE", reason="time-out") from error
        except KeyError as error:
            raise GatewayError("AUTHORIZER_CONFIGURATION_ERROR", reason="no such function") from error
        except (Throttled, OSError, RuntimeError) as error:
            raise GatewayError("AUTHORIZER_FAILURE", reason=type(error).__name__) from error
        policy, values = _read_answer(result)
        return _Grant(policy, values, self._monotonic() + self._spec.ttl_s)


def _read_answer(result: InvokeResult) -> tuple[Policy, Mapping[str, str]]:
    document = _document(result.payload)
    if result.function_error is not None:
        if document.get("errorMessage") == "Unauthorized":
            raise GatewayError("UNAUTHORIZED", reason="the authorizer said Unauthorized")
        raise GatewayError("AUTHORIZER_FAILURE", reason=str(document.get("errorType", "error")))
    try:
        policy = read_policy(document.get("policyDocument"))
        return policy, {**_context(document.get("context")), "principalId": _principal(document)}
    except PolicyError as error:
        raise GatewayError("AUTHORIZER_CONFIGURATION_ERROR", reason=str(error)) from error


def _document(payload: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(payload)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _principal(document: Mapping[str, Any]) -> str:
    principal = document.get("principalId")
    if not isinstance(principal, str) or not principal:
        raise PolicyError("principalId is missing")
    return principal


def _context(context: object) -> dict[str, str]:
    """Return context values as text, as API Gateway passes them to functions. Null values are left out."""
    if context is None:
        return {}
    if not isinstance(context, dict):
        raise PolicyError("context is not an object")
    values: dict[str, str] = {}
    for name, value in context.items():
        if isinstance(value, str):
            values[name] = value
        elif isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            values[name] = json.dumps(value)
        elif value is not None:
            raise PolicyError(f"context value {name!r} is not a string, number or boolean")
    return values
