"""Violations of invariants, and the accepted jobs that they are checked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

Database = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated invariant."""

    invariant: str
    """I1 … I12."""
    subject: str
    """The job, document, queue or place."""
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.subject}: {self.what}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Job as its caller knows it: the service answered 202."""

    job_id: str
    url: str
    corpus: str
    sentence: str = ""
    """Text that is unique to this document; empty when there is none to search for."""
    ends: str = "done"
    """Expected terminal status."""
