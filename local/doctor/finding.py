"""Finding of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. A `note` is information and no failure."""

    about: str
    verdict: Verdict
    text: str
    """State or problem."""
    affects: str = ""
    """Effect of the problem."""
    mend: str = ""
    """Remedy: a command, or a sentence."""


def ok(about: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(about, "ok", text)


def note(about: str, text: str, affects: str, mend: str = "") -> Finding:
    """Return a note."""
    return Finding(about, "note", text, affects, mend)


def wrong(about: str, text: str, affects: str, mend: str) -> Finding:
    """Return a problem."""
    return Finding(about, "wrong", text, affects, mend)
