"""Membership over HTTP, behind a circuit breaker."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pybreaker

from indexmill.access.ports import InvalidKey
from indexmill.contracts.errors import ErrorCode, TransientError

_TIMEOUT_S = 2.0
_VALID = (200, 201)
_INVALID = (401, 403, 409)
_MAX_BODY = 64 * 1024
_FAILURES_TO_OPEN = 3
_OPEN_S = 30


class _UnreadableError(ValueError):
    """Membership's answer is not a small JSON object."""


class HttpMembership:
    """`POST /auth {"api_key": …}`: 200 and 201 mean valid, 401, 403 and 409 invalid, the rest an outage."""

    def __init__(self, base_url: str, http: httpx.Client | None = None) -> None:
        """`base_url` has no path of its own."""
        self._url = f"{base_url.rstrip('/')}/auth"
        self._http = http or httpx.Client(timeout=_TIMEOUT_S, trust_env=False)
        # A refused key is an answer, not a failure: three of them must not open the breaker.
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=_FAILURES_TO_OPEN,
            reset_timeout=_OPEN_S,
            exclude=[InvalidKey],
            throw_new_error_on_trip=False,
        )

    def authenticate(self, api_key: str) -> dict[str, Any]:
        """Ask Membership about the key."""
        try:
            claims: dict[str, Any] = self._breaker.call(self._ask, api_key)
        except (pybreaker.CircuitBreakerError, httpx.HTTPError, ValueError) as error:
            raise TransientError(
                ErrorCode.AUTH_UNAVAILABLE, "Keys cannot be checked right now.", retry_after=5
            ) from error
        return claims

    def _ask(self, api_key: str) -> dict[str, Any]:
        with self._http.stream("POST", self._url, json={"api_key": api_key}) as response:
            if response.status_code in _INVALID:
                raise InvalidKey
            if response.status_code not in _VALID:
                raise httpx.HTTPStatusError("unexpected status", request=response.request, response=response)
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > _MAX_BODY:
                    raise _UnreadableError
        if not body.strip():
            return {}
        claims = json.loads(body)
        if not isinstance(claims, dict):
            raise _UnreadableError
        return claims
