"""Builders of the events that AWS sends to functions."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from tests.twins.queues import QUEUE_ARN


def api_event(
    method: str,
    path: str,
    body: Any = None,
    *,
    raw: bytes | str | None = None,
    headers: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
    caller: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a REST proxy event; `caller` is the authorizer's context, None for no authorizer."""
    text = raw if raw is not None else (json.dumps(body) if body is not None else None)
    encoded = isinstance(text, bytes)
    if isinstance(text, bytes):
        text = base64.b64encode(text).decode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    return {
        "resource": path,
        "path": path,
        "httpMethod": method,
        "headers": sent,
        "multiValueHeaders": {name: [value] for name, value in sent.items()},
        "queryStringParameters": query,
        "multiValueQueryStringParameters": {k: [v] for k, v in query.items()} if query else None,
        "pathParameters": None,
        "stageVariables": None,
        "requestContext": {
            "requestId": "req-123",
            "stage": "dev",
            "path": f"/dev{path}",
            "httpMethod": method,
            "authorizer": caller,
            "identity": {"sourceIp": "127.0.0.1"},
        },
        "body": text,
        "isBase64Encoded": encoded,
    }


def caller_claims(caller_id: str = "0123456789abcdef", *, internal: bool = False) -> dict[str, str]:
    """Return an authorizer context."""
    return {"caller_id": caller_id, "internal": "true" if internal else "false"}


def sqs_event(*bodies: str, receive_count: int = 1) -> dict[str, Any]:
    """Return an SQS event with one record per body; message ids are m0, m1, …"""
    return {
        "Records": [
            {
                "messageId": f"m{at}",
                "receiptHandle": f"r{at}",
                "body": body,
                "attributes": {"ApproximateReceiveCount": str(receive_count)},
                "eventSourceARN": QUEUE_ARN,
            }
            for at, body in enumerate(bodies)
        ]
    }


@dataclass(frozen=True)
class FakeContext:
    """Lambda's context with a minute left."""

    aws_request_id: str = "aws-req"
    remaining_ms: int = 60_000

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left."""
        return self.remaining_ms
