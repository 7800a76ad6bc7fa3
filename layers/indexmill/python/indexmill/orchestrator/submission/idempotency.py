"""Idempotent submits: the same request under the same Idempotency-Key has the same answer."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from pydantic import BaseModel

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.job import SubmitResponse
from indexmill.orchestrator.store.jobs import JobsTx

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_YOUNGER: Final = (
    *("on_behalf_of", "budget", "content", "max_age", "when_gone", "kind", "crawl", "dry_run"),
    *("accept", "metadata", "delete"),
)
"""Fields that are younger than kept digests: part of a digest only where they are given."""


def request_digest(request: BaseModel) -> str:
    """Return the digest of the request's content, independent of its formatting."""
    unset = {name for name in _YOUNGER if getattr(request, name, None) is None}
    return hashlib.sha256(request.model_dump_json(exclude=unset).encode()).hexdigest()


def checked_key(key: str) -> str:
    """Return `key`; raises CallerError(validation_error) unless it is 1 to 255 visible ASCII characters."""
    if _KEY.fullmatch(key) is None:
        raise CallerError(
            ErrorCode.VALIDATION_ERROR,
            "Idempotency-Key has 1 to 255 visible ASCII characters.",
            field="header.Idempotency-Key",
        )
    return key


def kept_answer(tx: JobsTx, caller_id: str, key: str, digest: str) -> SubmitResponse:
    """Return the first answer under the key; raises CallerError(idempotency_conflict) for another request."""
    kept = tx.kept_answer(caller_id, key)
    if kept is None or kept[0] != digest:
        raise CallerError(
            ErrorCode.IDEMPOTENCY_CONFLICT,
            "This Idempotency-Key was used for another request within the last 24 hours.",
            hint="Send the same body, or another key.",
        )
    return SubmitResponse.model_validate_json(kept[1])
