"""Client that reports a stage's result to the Orchestrator over HTTP, for stages that run elsewhere.

The workers use the callback queue, which keeps a result until it is applied. A stage that runs elsewhere
with an internal key may use this instead: it tries HTTP with back-off and, while the Orchestrator stays
unavailable, falls back to the callback queue, so that no result is lost while its sender runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Literal

import httpx

from indexmill.contracts.content import Document
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.job import StageCompletePayload
from indexmill.contracts.messages import Chunked, Embedded, StageResult, write
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.time import RetryPolicy

POLICY: Final = RetryPolicy(max_retries=4, base_s=0.5, max_backoff_s=8.0)
_TIMEOUT_S: Final = 10.0
_LONGEST_PAUSE_S: Final = 30.0
_NOT_FOUND: Final = 404
_LATER: Final = frozenset((408, 409, 425, 429))
"""Beside every 5xx: the job may not have got there yet, or the gateway is busy."""


class NotifyOrchestrator:
    """`POST /orchestrator/jobs/{id}/complete`, and the callback queue behind it."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        queue: Queue,
        *,
        policy: RetryPolicy = POLICY,
        http: httpx.Client | None = None,
        pause: Callable[[float], Any] | None = None,
    ) -> None:
        """`queue` is the callback queue; `pause` waits that many seconds."""
        self._base_url = base_url.rstrip("/")
        self._headers = {"X-API-Key": api_key}
        self._queue = queue
        self._policy = policy
        self._http = http or httpx.Client(timeout=_TIMEOUT_S, trust_env=False)
        self._pause = pause or threading.Event().wait

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __call__(self, result: StageResult) -> Literal["http", "queue"]:
        """Deliver `result` and say how; 200 `already_advanced` is delivered, and so is an unknown job's.

        The same result may arrive twice: its message id counts once.
        Raises TransientError(queue_unavailable) when neither way is open.
        """
        payload = _payload(result)
        if payload is not None and result.job_id is not None and self._by_http(result.job_id, payload):
            return "http"
        if self._queue.send([write(result)]):
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue did not take the report.")
        return "queue"

    def _by_http(self, job_id: str, payload: dict[str, Any]) -> bool:
        url = f"{self._base_url}/orchestrator/jobs/{job_id}/complete"
        for tries in range(1, self._policy.max_tries + 1):
            retry_after: int | None = None
            try:
                answer = self._http.post(url, json=payload, headers=self._headers)
            except httpx.HTTPError:
                pass
            else:
                if answer.is_success or answer.status_code == _NOT_FOUND:
                    return True
                if not answer.is_server_error and answer.status_code not in _LATER:
                    return False
                retry_after = _seconds(answer.headers.get("Retry-After", ""))
            if tries < self._policy.max_tries:
                wait = self._policy.delay(tries, retry_after=retry_after)
                self._pause(min(wait, _LONGEST_PAUSE_S))
        return False


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _payload(result: StageResult) -> dict[str, Any] | None:
    """Return the body; None for what goes by the queue only: waits, and what is kept elsewhere."""
    common: dict[str, Any] = {
        "stage": result.stage,
        "attempt": result.attempt,
        "message_id": result.message_id,
    }
    if result.status == "failed" and result.failure is not None:
        failure = result.failure
        failed = {"status": "failed", "error_code": failure.code, "error_message": failure.message[:2000]}
        return _checked({**common, **failed})
    made = _made(result)
    return None if made is None else _checked({**common, "status": "success", "result": made})


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    return StageCompletePayload.model_validate(fields).model_dump(mode="json", exclude_none=True)


def _made(result: StageResult) -> dict[str, Any] | None:
    output = result.output
    if isinstance(output, Document) and output.text is not None:
        names = {"text", "title", "content_type", "final_url"}
        return output.model_dump(mode="json", include=names, exclude_none=True)
    if isinstance(output, Chunked) and output.chunks is not None:
        return {"chunks": [chunk.model_dump(mode="json") for chunk in output.chunks]}
    if isinstance(output, Embedded):
        return {"chunk_count": output.chunk_count, "model": output.model}
    return None
