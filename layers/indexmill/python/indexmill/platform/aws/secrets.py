"""Settings that are secrets: a literal on a laptop, a Secrets Manager ARN on AWS, read again in rotations."""

from __future__ import annotations

import logging
import math
from typing import Final

from indexmill.contracts.errors import Defect, ErrorCode, TransientError
from indexmill.platform.time import Clock, SystemClock

KEPT_S: Final = 300.0
"""Seconds after which a secret is read again."""
_AGAIN_S: Final = 1.0
"""Seconds for which a value that was refused is not read again: the cause is another one."""
_VERIFY_S: Final = 10.0
"""Seconds between two reads that a token which cannot be verified causes: any caller can send one."""
_RETRY_S: Final = 30.0
"""Seconds for which an older value serves when Secrets Manager cannot be reached."""
_CURRENT: Final = "AWSCURRENT"
_PREVIOUS: Final = "AWSPREVIOUS"
_PENDING: Final = "AWSPENDING"
_LOG: Final = logging.getLogger(__name__)


class Secret:
    """One secret; it is read on first use, so that no function waits for it while it starts."""

    def __init__(
        self,
        literal: str | None,
        arn: str | None = None,
        *,
        previous: str | None = None,
        unavailable: ErrorCode = ErrorCode.INTERNAL_ERROR,
        clock: Clock | None = None,
    ) -> None:
        """`literal`, with `previous`, wins over `arn`; `unavailable` is the code when it cannot be read."""
        self._literals = {_CURRENT: literal, _PREVIOUS: previous}
        self._arn = None if literal else arn or ""
        self._unavailable = unavailable
        self._clock = clock or SystemClock()
        self._kept: dict[str, tuple[float, str | None]] = {}
        """Time of the last read, and its value, by version stage."""
        self._verified_at = -math.inf
        """Time of the last read that `known` was asked for."""

    def current(self) -> str:
        """Return the secret, at most five minutes old; raises TransientError, or Defect when none is set."""
        return self._value(_CURRENT, KEPT_S) or ""

    def again(self) -> str:
        """Return the secret, read now, after its value was refused; raises TransientError."""
        return self._value(_CURRENT, _AGAIN_S) or ""

    def pending(self) -> str | None:
        """Return what a rotation that has not ended made of it, read now; raises TransientError."""
        return self._value(_PENDING, 0.0)

    def known(self, *, again: bool = False) -> tuple[str, ...]:
        """Return the secret and the one before it, if there is one: what may be verified with.

        With `again` both are read now, once in ten seconds.
        """
        kept_s, now = KEPT_S, self._clock.monotonic()
        if again and now - self._verified_at >= _VERIFY_S:
            kept_s, self._verified_at = 0.0, now
        return tuple(filter(None, (self._value(_CURRENT, kept_s), self._value(_PREVIOUS, kept_s))))

    def _value(self, stage: str, kept_s: float) -> str | None:
        if self._arn is None:
            return self._literals.get(stage)
        if not self._arn:
            raise Defect("neither the literal nor the secret's ARN is set")
        now = self._clock.monotonic()
        read_at, value = self._kept.get(stage, (None, None))
        if read_at is not None and now - read_at < kept_s:
            return value
        try:
            value = _fetch(self._arn, stage)
        except Exception as error:
            # An outage of Secrets Manager stops no function that has a value.
            if read_at is None:
                raise TransientError(
                    self._unavailable, "A secret cannot be read right now.", retry_after=5
                ) from error
            _LOG.warning(
                "a secret cannot be read; the last value serves", extra={"reason": repr(error)[:200]}
            )
            now += _RETRY_S - KEPT_S
        self._kept[stage] = (now, value)
        return value


def _fetch(arn: str, stage: str) -> str | None:
    """Return a version's text, None when there is no such version; raises botocore's errors."""
    # Only a function on AWS comes here: on a laptop the import would cost every cold start.
    from indexmill.platform.aws.clients import CallLimits, client

    secrets = client("secretsmanager", limits=CallLimits(1.0, 2.0, 1))
    try:
        value: str = secrets.get_secret_value(SecretId=arn, VersionStage=stage)["SecretString"]
    except secrets.exceptions.ResourceNotFoundException:
        if stage == _CURRENT:
            raise
        return None
    return value
