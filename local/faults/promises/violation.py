"""What a check says when a promise was not kept, and what was promised to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

Database = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    promise: str
    """I1 … I12."""
    subject: str
    """The job, document, queue or place."""
    what: str

    def __str__(self) -> str:
        return f"{self.promise} {self.subject}: {self.what}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job as its caller knows it: the service answered 202."""

    job_id: str
    url: str
    corpus: str
    sentence: str = ""
    """Stands in this document alone; empty when there is none to be searched for."""
    ends: str = "done"
    """How it must end."""
