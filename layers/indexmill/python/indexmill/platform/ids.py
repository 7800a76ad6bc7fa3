"""New identifiers."""

from __future__ import annotations

import os
import uuid


def new_id() -> str:
    """Return a random UUID in its canonical form."""
    return str(uuid.uuid4())


def worker_id() -> str | None:
    """Return the name of this execution environment's log stream; None outside Lambda."""
    return os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME")
