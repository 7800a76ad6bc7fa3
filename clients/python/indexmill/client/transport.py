"""Requests of one caller to one Indexmill, repeated where that is safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
from pydantic import BaseModel

from indexmill.client.errors import ApiError, api_error
from indexmill.contracts.job import SubmitResponse
from indexmill.platform.time import Clock, SystemClock

_Answer = TypeVar("_Answer")
_Model = TypeVar("_Model", bound=BaseModel)

FIRST_POLL_S: Final = 0.1
LONGEST_POLL_S: Final = 2.0
_REFUSED: Final = 429
_TRANSIENT: Final = frozenset({429, 502, 503, 504})
"""Statuses after which a request is repeated."""


class Transport:
    """Requests, and their errors as ApiError."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        timeout: float = 35.0,
        *,
        patience_s: float = 30.0,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - waits on the caller's own machine
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url, headers={"X-API-Key": api_key}, timeout=timeout, follow_redirects=False
        )
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _submit(
        self,
        body: Mapping[str, object],
        corpus_name: str | None,
        idempotency_key: str | None,
        options: Mapping[str, object],
    ) -> SubmitResponse:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        whole = {**body, "corpus_name": corpus_name, **options}
        return self._post("/orchestrator/jobs", SubmitResponse, whole, headers=headers)

    def _patiently(self, read: Callable[[], _Answer], deadline: float) -> _Answer:
        """Return `read()`, repeated while an outage lasts and before the deadline, as Retry-After says."""
        pause = FIRST_POLL_S
        while True:
            try:
                return read()
            except ApiError as error:
                left = deadline - self._clock.monotonic()
                transient = error.status in _TRANSIENT or error.status == 0
                if not transient or left <= 0:
                    raise
                self._sleep(min(max(error.retry_after or 0.0, pause), left))
                pause = min(pause * 2, LONGEST_POLL_S)

    def _post(self, path: str, model: type[_Model], body: Mapping[str, Any], **more: Any) -> _Model:
        """Send the fields that are not None and return the answer as `model`."""
        sent = {
            name: value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
            for name, value in body.items()
            if value is not None
        }
        return model.model_validate(self._request("POST", path, json=sent, **more))

    def _request(self, method: str, path: str, **more: Any) -> Any:
        return self._send(method, path, **more).json()

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        until = self._clock.monotonic() + self._patience_s
        while True:
            try:
                return self._send_once(method, path, **more)
            except ApiError as error:
                # Refused before any work was done, so that a repeated POST does nothing twice.
                wait_s = error.retry_after if error.status == _REFUSED else None
                if wait_s is None or self._clock.monotonic() + wait_s > until:
                    raise
                self._sleep(wait_s)

    def _send_once(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ApiError(
                "connection_error", f"{self._http.base_url} did not answer: {reason}", 0
            ) from error
        if response.is_success:
            return response
        raise api_error(response.status_code, response.reason_phrase, response.text)
