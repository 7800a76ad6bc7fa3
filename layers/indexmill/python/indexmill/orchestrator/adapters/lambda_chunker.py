"""The Chunking service by direct invoke of its function."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import ChunkCall, ChunkReply, write
from indexmill.platform.adapters.aws import client


class LambdaChunker:
    """Calls the function by name and waits for its answer."""

    def __init__(self, function_name: str, *, timeout_s: float, lambda_client: Any | None = None) -> None:
        """`timeout_s` must be longer than the function's own time-out."""
        self._function = function_name
        self._timeout_s = timeout_s
        self._lambda = lambda_client

    def chunk(self, call: ChunkCall) -> ChunkReply:
        """Split the documents of `call`."""
        if self._lambda is None:
            self._lambda = client("lambda", read_timeout_s=self._timeout_s)
        payload = write(call).encode()
        try:
            answer = self._lambda.invoke(FunctionName=self._function, Payload=payload)
            body: bytes = answer["Payload"].read()
        except (BotoCoreError, ClientError) as error:
            raise _unavailable("cannot be reached") from error
        if answer.get("FunctionError"):
            raise _unavailable("failed")
        try:
            return ChunkReply.model_validate_json(body)
        except ValidationError as error:
            raise _unavailable("gave an unreadable answer") from error


def _unavailable(what: str) -> TransientError:
    return TransientError(ErrorCode.CHUNKING_UNAVAILABLE, f"The Chunking service {what}.", retry_after=5)
