"""The Chunking service by direct invoke of its function."""

from __future__ import annotations

import json
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import ChunkCall, ChunkReply, write
from indexmill.orchestrator.ports_chunking import ChunkerAway
from indexmill.platform.aws.clients import client

_REFUSED_PAYLOADS: Final = ("RequestTooLargeException", "InvalidRequestContentException")
"""What Lambda answers because of what a call carries; any other refusal is everybody's."""
_NEVER_BEGAN: Final = (
    "Runtime.ImportModuleError",
    "Runtime.HandlerNotFound",
    "Runtime.MalformedHandlerName",
    "Runtime.UserCodeSyntaxError",
    "Runtime.InvalidEntrypoint",
    "Runtime.InvalidWorkingDir",
    "Runtime.InvalidTaskConfig",
    "Extension.InitError",
    "Sandbox.StartFailure",
)
"""Errors of a function that could not be started."""


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
        except ClientError as error:
            raise _refusal(error) from error
        except BotoCoreError as error:
            raise ChunkerAway("cannot be reached") from error
        if answer.get("FunctionError"):
            raise _failure(body)
        try:
            reply = ChunkReply.model_validate_json(body)
        except ValidationError as error:
            raise _died("gave an unreadable answer") from error
        if len(reply.items) != len(call.items):
            raise _died("did not answer for each document")
        return reply


def _refusal(error: ClientError) -> TransientError:
    if error.response.get("Error", {}).get("Code") in _REFUSED_PAYLOADS:
        return _died("refused the call")
    return ChunkerAway("takes no calls")


def _failure(document: bytes) -> TransientError:
    """Return what a function error means: only one that it met while it worked may be the documents'."""
    try:
        told = json.loads(document)
        kind, request = told.get("errorType"), told.get("requestId")
    except (ValueError, AttributeError):
        return _died("failed")
    # What the runtime reports of an initialisation that raised has no request to name.
    if kind in _NEVER_BEGAN or request == "":
        return ChunkerAway("does not start")
    return _died("failed")


def _died(what: str) -> TransientError:
    return TransientError(ErrorCode.CHUNKING_UNAVAILABLE, f"The Chunking service {what}.", retry_after=5)
