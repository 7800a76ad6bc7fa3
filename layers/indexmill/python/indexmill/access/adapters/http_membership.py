"""Membership over HTTP, behind a circuit breaker."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pybreaker

from indexmill.access.ports import InvalidKey, UnexpectedStatus
from indexmill.contracts.errors import ErrorCode, TransientError

_TIMEOUT_S = 2.0
_VALID = (200, 201)
_INVALID = (400, 401, 403, 409, 422)
_SERVER_ERROR = 500
_MAX_BODY = 64 * 1024
_FAILURES_TO_OPEN = 3
_OPEN_S = 30


class _UnreadableError(ValueError):
    """Membership's answer is not a small JSON object."""


class HttpMembership:
    """`POST /auth {"api_key": …}`: 200 and 201 mean valid, 400, 401, 403, 409 and 422 invalid.

    5xx, no answer and an unreadable one are an outage, and three in a row open the breaker. Any other status
    is of this one request: who provokes it must not get every other caller refused.
    """

    def __init__(self, base_url: str, http: httpx.Client | None = None) -> None:
        """`base_url` has no path of its own."""
        self._url = f"{base_url.rstrip('/')}/auth"
        self._http = http or httpx.Client(timeout=_TIMEOUT_S, trust_env=False)
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=_FAILURES_TO_OPEN, reset_timeout=_OPEN_S, throw_new_error_on_trip=False
        )

    def authenticate(self, api_key: str) -> dict[str, Any]:
        """Ask Membership about the key."""
        try:
            status, claims = self._breaker.call(self._ask, api_key)
        except (pybreaker.CircuitBreakerError, httpx.HTTPError, ValueError) as error:
            raise TransientError(
                ErrorCode.AUTH_UNAVAILABLE, "Keys cannot be checked right now.", retry_after=5
            ) from error
        if status in _INVALID:
            raise InvalidKey
        if status not in _VALID:
            raise UnexpectedStatus(status)
        return claims

    def _ask(self, api_key: str) -> tuple[int, dict[str, Any]]:
        """Return status and claims. Raises what counts as a failure of Membership."""
        with self._http.stream("POST", self._url, json={"api_key": api_key}) as response:
            if response.status_code >= _SERVER_ERROR:
                raise httpx.HTTPStatusError("server error", request=response.request, response=response)
            if response.status_code not in _VALID:
                return response.status_code, {}
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > _MAX_BODY:
                    raise _UnreadableError
        claims = json.loads(body) if body.strip() else {}
        if not isinstance(claims, dict):
            raise _UnreadableError
        return response.status_code, claims
