"""New identifiers."""

from __future__ import annotations

import uuid


def new_id() -> str:
    """Return a random UUID in its canonical form."""
    return str(uuid.uuid4())
