"""Inputs and outputs of a stage's module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from indexmill.contracts.content import Unchanged
from indexmill.contracts.job import PageChange
from indexmill.contracts.messages import Stored


@dataclass(frozen=True, slots=True)
class Output:
    """Columns of a job that a stage's success sets; None and {} leave a column unchanged."""

    title: str | None = None
    chunk_count: int | None = None
    tokens: int | None = None
    """Of the chunks; None when they are not here."""
    size: int | None = None
    """Bytes of the content that was fetched."""
    stored: Stored | None = None
    """Where the raw content is kept."""
    digests: dict[str, Any] = field(default_factory=dict)
    """Of what went into the result: enough to say later whether a replay made the same."""
    change: PageChange | None = None
    """What the fetch found, compared with the version that was published when the job was submitted."""
    unchanged: Unchanged | None = None
    """How the page was found unchanged: nothing follows."""
    ends: bool = False
    """There is nothing to index: nothing follows."""
    fenced: bool = False
    """Nothing was published, since another job's end had fenced this generation out."""
