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
    mend: str = ""
    """What to do about it: a command, or a sentence."""


def ok(about: str, text: str) -> Finding:
    """All is well."""
    return Finding(about, "ok", text)


def note(about: str, text: str, mend: str = "") -> Finding:
    """Worth knowing."""
    return Finding(about, "note", text, mend)


def wrong(about: str, text: str, mend: str) -> Finding:
    """Something will not work."""
    return Finding(about, "wrong", text, mend)
