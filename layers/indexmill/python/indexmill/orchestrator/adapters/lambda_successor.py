"""Successor by an asynchronous invoke of the function that applies results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.clients import client


class LambdaSuccessor:
    """Tells a function by name and does not wait for it."""

    def __init__(self, function_name: str, lambda_client: Any | None = None) -> None:
        """The client is made on first use."""
        self._function = function_name
        self._lambda = lambda_client

    def go_on(self, message_ids: Sequence[str]) -> None:
        """Have these rows run. Raises TransientError(queue_unavailable)."""
        if self._lambda is None:
            self._lambda = client("lambda")
        event = json.dumps({"take_over": list(message_ids)}).encode()
        try:
            self._lambda.invoke(FunctionName=self._function, InvocationType="Event", Payload=event)
        except (BotoCoreError, ClientError) as error:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The work cannot be handed over.") from error
