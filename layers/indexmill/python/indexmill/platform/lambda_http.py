"""A FastAPI app as a Lambda handler behind a REST API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from mangum import Mangum

from indexmill.contracts.errors import ErrorCode
from indexmill.platform.observability import Observability
from indexmill.platform.request_ids import request_id

_MAX_RESPONSE_BYTES = 6_000_000
"""Lambda refuses to return more than 6 MB; some is left for the reply's own envelope."""

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def lambda_handler(app: FastAPI, observability: Observability) -> Handler:
    """Wrap `app`; every answer carries X-Request-Id, and none is larger than Lambda can return."""
    # Mangum would run the app's lifespan on every event: clients live at module scope instead.
    mangum = Mangum(app, lifespan="off")

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        reply: dict[str, Any] = mangum(event, context)
        own_id = request_id(event)
        if len(reply.get("body") or "") > _MAX_RESPONSE_BYTES:
            reply = _too_large(own_id)
        reply.setdefault("headers", {})["x-request-id"] = own_id
        observability.flush()
        return reply

    return handler


def _too_large(own_id: str) -> dict[str, Any]:
    error = {
        "code": ErrorCode.RESPONSE_TOO_LARGE,
        "message": "The answer would be larger than 6 MB.",
        "request_id": own_id,
        "hint": "Use the asynchronous endpoint, POST /orchestrator/jobs.",
    }
    return {
        "statusCode": 413,
        "headers": {"content-type": "application/json"},
        "body": json.dumps({"error": error}),
        "isBase64Encoded": False,
    }
