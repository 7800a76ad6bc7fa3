"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `note` is worth knowing and harms nothing."""

    about: str
    verdict: Verdict
    text: str
    """What is there, or what is wrong with it."""
    affects: str = ""
    """What does not work, or may not."""
    mend: str = ""
    """What to do about it: a command, or a sentence."""


def ok(about: str, text: str) -> Finding:
    """All is well."""
    return Finding(about, "ok", text)


def note(about: str, text: str, affects: str, mend: str = "") -> Finding:
    """Worth knowing."""
    return Finding(about, "note", text, affects, mend)


def wrong(about: str, text: str, affects: str, mend: str) -> Finding:
    """Something will not work."""
    return Finding(about, "wrong", text, affects, mend)
