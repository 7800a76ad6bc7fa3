"""IndexBuilder as a Lambda function that is invoked asynchronously."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.clients import LazyClient


class LambdaIndexBuilder:
    """The function of sql/build_index.py."""

    def __init__(self, function: str, lambda_: Any | None = None) -> None:
        """`function` is its name or ARN; the client is made on first use."""
        self._function = function
        self._lambda = lambda_ or LazyClient("lambda")

    def start(self) -> None:
        """Queue an event for it. Raises TransientError."""
        try:
            self._lambda.invoke(FunctionName=self._function, InvocationType="Event", Payload=b"{}")
        except (BotoCoreError, ClientError) as error:
            raise TransientError(
                ErrorCode.QUEUE_UNAVAILABLE, "The index builder cannot be invoked."
            ) from error
