"""Membership over HTTP, behind a circuit breaker."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import httpx
import pybreaker

from indexmill.access.identify import InvalidKey, UnexpectedStatus
from indexmill.access.settings import AuthStyle
from indexmill.contracts.errors import ErrorCode, TransientError

_TOTAL_S: Final = 2.0
"""Of one question, from the look-up of the name to the last byte of the answer."""
_VALID: Final = (200, 201)
_INVALID: Final = (400, 401, 403, 409, 422)
_SERVER_ERROR: Final = 500
_MAX_BODY: Final = 64 * 1024
_FAILURES_TO_OPEN: Final = 3


class _UnreadableError(ValueError):
    """Membership's answer is not a small JSON object."""


class HttpMembership:
    """`POST /auth`: 200 and 201 mean valid, 400, 401, 403, 409 and 422 invalid.

    5xx, no answer within 2 s and an unreadable one are an outage, and three in a row open the breaker for
    `open_s` seconds; then one question probes. Any other status is of this one request: who provokes it must
    not get every other caller refused.
    """

    def __init__(self, base_url: str, *, style: AuthStyle = "body", open_s: float = 30) -> None:
        """`base_url` has no path of its own; nothing is connected yet."""
        self._url = f"{base_url.rstrip('/')}/auth"
        self._style = style
        # Time-outs of sockets are per read: an event loop limits the whole question, the look-up included.
        self._loop = asyncio.Runner()
        self._http = httpx.AsyncClient(timeout=_TOTAL_S, trust_env=False)
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=_FAILURES_TO_OPEN, reset_timeout=open_s, throw_new_error_on_trip=False
        )

    def authenticate(self, api_key: str) -> dict[str, Any]:
        """Ask Membership about the key."""
        try:
            status, claims = self._breaker.call(self._ask, api_key)
        except (pybreaker.CircuitBreakerError, httpx.HTTPError, TimeoutError, ValueError) as error:
            raise TransientError(
                ErrorCode.AUTH_UNAVAILABLE, "Keys cannot be checked right now.", retry_after=5
            ) from error
        if status in _INVALID:
            raise InvalidKey
        if status not in _VALID:
            raise UnexpectedStatus(status)
        return claims

    def close(self) -> None:
        """Close connections and event loop; an environment of a function keeps them for its whole life."""
        self._loop.run(self._http.aclose())
        self._loop.close()

    def _ask(self, api_key: str) -> tuple[int, dict[str, Any]]:
        """Return status and claims. Raises what counts as a failure of Membership."""
        return self._loop.run(self._answer(api_key))

    async def _answer(self, api_key: str) -> tuple[int, dict[str, Any]]:
        headers = {"X-API-Key": api_key} if self._style != "body" else {}
        content = {"api_key": api_key} if self._style != "header" else {}
        body = b""
        async with (
            asyncio.timeout(_TOTAL_S),
            self._http.stream("POST", self._url, json=content, headers=headers) as response,
        ):
            if response.status_code >= _SERVER_ERROR:
                raise httpx.HTTPStatusError("server error", request=response.request, response=response)
            if response.status_code not in _VALID:
                return response.status_code, {}
            async for part in response.aiter_raw():
                body += part
                if len(body) > _MAX_BODY:
                    raise _UnreadableError
        claims = json.loads(body) if body.strip() else {}
        if not isinstance(claims, dict):
            raise _UnreadableError
        return response.status_code, claims
