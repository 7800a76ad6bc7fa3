"""Switch on a Lambda event source mapping."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.clients import LazyClient

_ON: Final = ("Enabled", "Enabling", "Creating")
_OFF: Final = ("Disabled", "Disabling")


class LambdaSwitch:
    """One event source mapping. It is looked at first: a change takes Lambda up to a minute."""

    def __init__(self, mapping_id: str, lambda_: Any | None = None) -> None:
        """The client is made on first use."""
        self._id = mapping_id
        self._lambda = lambda_ or LazyClient("lambda")

    def set(self, *, on: bool) -> bool:
        """Turn it on or off; return whether that changed anything. Raises TransientError."""
        try:
            state = self._lambda.get_event_source_mapping(UUID=self._id)["State"]
            if state in (_ON if on else _OFF):
                return False
            self._lambda.update_event_source_mapping(UUID=self._id, Enabled=on)
        except (BotoCoreError, ClientError) as error:
            raise TransientError(
                ErrorCode.QUEUE_UNAVAILABLE, "The event source mapping cannot be switched."
            ) from error
        return True
