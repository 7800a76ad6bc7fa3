"""SQS client for event sources: five operations in AWS's JSON protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from local.triggers.keep_alive import KeepAliveClient

MAX_PER_CALL = 10
"""Most messages of one receive or one batch call."""
ANSWER_LIMIT_S = 10.0
_AGE_ATTRIBUTE = "Local.AgeOfOldestMessage"
"""Only the local cloud's endpoint has it; others leave it out."""


class SqsError(Exception):
    """Raised when SQS refused a call; `code` is AWS's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class SqsClient:
    """Client of one queue. Every method raises SqsError, or OSError when there is no response."""

    def __init__(self, endpoint: str, queue_url: str, *, region: str) -> None:
        self._http = KeepAliveClient(endpoint)
        self._queue_url = queue_url
        # Emulators read account and region from the signature and do not verify it.
        credential = f"local/20260101/{region}/sqs/aws4_request"
        self._head = (
            f"POST / HTTP/1.1\r\nHost: {self._http.netloc}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0\r\n"
            "X-Amz-Target: AmazonSQS."
        )

    async def receive(self, limit: int, wait_s: int = 0) -> list[dict[str, Any]]:
        """Return up to `limit` (at most 10) messages with attributes; wait up to `wait_s` for the first."""
        answer = await self._call(
            "ReceiveMessage",
            {
                "QueueUrl": self._queue_url,
                "MaxNumberOfMessages": min(limit, MAX_PER_CALL),
                "WaitTimeSeconds": wait_s,
                "MessageSystemAttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            },
        )
        messages: list[dict[str, Any]] = answer.get("Messages") or []
        return messages

    async def delete(self, receipt_handles: Sequence[str]) -> int:
        """Delete messages, ten per call; returns how many SQS refused to delete."""
        return await self._in_batches("DeleteMessageBatch", receipt_handles, {})

    async def give_back(self, receipt_handles: Sequence[str]) -> int:
        """Make messages visible again at once; returns how many SQS refused."""
        return await self._in_batches(
            "ChangeMessageVisibilityBatch", receipt_handles, {"VisibilityTimeout": 0}
        )

    async def visibility_s(self) -> int:
        """Return the queue's visibility timeout in seconds."""
        attributes = {"QueueUrl": self._queue_url, "AttributeNames": ["VisibilityTimeout"]}
        answer = await self._call("GetQueueAttributes", attributes)
        return int(answer["Attributes"]["VisibilityTimeout"])

    async def depths(self) -> tuple[int, int, int, float | None]:
        """Return counts of visible, in-flight, delayed messages; the oldest one's age in s, if known."""
        names = ("", "NotVisible", "Delayed")
        wanted = [f"ApproximateNumberOfMessages{name}" for name in names]
        answer = await self._call(
            "GetQueueAttributes", {"QueueUrl": self._queue_url, "AttributeNames": [*wanted, _AGE_ATTRIBUTE]}
        )
        found = answer["Attributes"]
        visible, in_flight, delayed = (int(found.get(name, 0)) for name in wanted)
        age = float(found[_AGE_ATTRIBUTE]) if _AGE_ATTRIBUTE in found else None
        return visible, in_flight, delayed, age

    def close(self) -> None:
        """Close the idle connections."""
        self._http.close()

    async def _in_batches(self, action: str, handles: Sequence[str], fields: dict[str, Any]) -> int:
        refused = 0
        for start in range(0, len(handles), MAX_PER_CALL):
            part = handles[start : start + MAX_PER_CALL]
            entries = [{"Id": str(i), "ReceiptHandle": h, **fields} for i, h in enumerate(part)]
            answer = await self._call(action, {"QueueUrl": self._queue_url, "Entries": entries})
            refused += len(answer.get("Failed") or ())
        return refused

    async def _call(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(arguments, separators=(",", ":")).encode()
        head = f"{self._head}{action}\r\nContent-Length: {len(body)}\r\n\r\n"
        async with asyncio.timeout(ANSWER_LIMIT_S + int(arguments.get("WaitTimeSeconds", 0))):
            status, answer = await self._http.post(head.encode("ascii") + body)
        try:
            content: dict[str, Any] = json.loads(answer) if answer else {}
        except ValueError:
            content = {"message": answer[:200].decode("utf-8", "replace")}
        if status != 200:
            code = str(content.get("__type", f"Http{status}")).rpartition("#")[2]
            raise SqsError(code, str(content.get("message") or content.get("Message") or ""))
        return content
