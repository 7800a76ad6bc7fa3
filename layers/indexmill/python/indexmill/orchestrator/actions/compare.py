"""Say which parts of two jobs' results differ, and what explains it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from indexmill.contracts.http_actions import Comparison

Part = Literal["content", "text", "chunks", "model"]
Facts = Mapping[str, Any]
"""The digests that the stages' modules note of a job."""


@dataclass(frozen=True, slots=True)
class _Kind:
    part: Part
    deciding: tuple[str, ...]
    """These make it the same."""
    beside: Mapping[str, str]
    """These explain a change: the explanation by name, the first that changed; empty for none."""
    why: str
    """When nothing noted explains it."""


_KINDS: Final = (
    _Kind(
        "content",
        ("content_sha256",),
        {"content_type": "", "rendered": "Its scripts were run for one of the two jobs only."},
        "The site serves something else.",
    ),
    _Kind(
        "text",
        ("text_sha256",),
        {"extractor": "The extractor changed."},
        "The same content was read differently.",
    ),
    _Kind(
        "chunks",
        ("chunks_sha256",),
        {
            "chunk_settings": "The chunk settings changed.",
            "chunker": "The chunker changed.",
            "tokenizer": "The tokenizer changed.",
        },
        "The chunker or its tokenizer changed.",
    ),
    _Kind("model", ("model", "dimension"), {}, "Another embedding model is configured."),
)
_INPUT: Final[dict[Part, Part]] = {"text": "content", "chunks": "text"}
"""What a part is made of."""


def compare(before: Facts, after: Facts) -> list[Comparison]:
    """Return the parts of two results in the order in which they are made."""
    verdicts = {kind.part: _verdict(kind, before, after) for kind in _KINDS}
    return [
        Comparison(
            part=kind.part,
            verdict=verdicts[kind.part],
            before=_shown(kind, before),
            after=_shown(kind, after),
            why=_why(kind, verdicts, before, after) if verdicts[kind.part] == "changed" else None,
        )
        for kind in _KINDS
    ]


_MOST_LINES: Final = 2_000
_MOST_CHARACTERS: Final = 16_000


def text_diff(before: str | None, after: str | None) -> str | None:
    """Return a unified diff, cut at 16,000 characters; None without a difference, and for very long texts."""
    if before is None or after is None or before == after:
        return None
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        return None
    lines = difflib.unified_diff(old, new, "before", "after", lineterm="")
    return "\n".join(lines)[:_MOST_CHARACTERS] or None


def _verdict(kind: _Kind, before: Facts, after: Facts) -> Literal["same", "changed", "unknown"]:
    if any(name not in facts for name in kind.deciding for facts in (before, after)):
        return "unknown"
    return "same" if all(before[name] == after[name] for name in kind.deciding) else "changed"


def _shown(kind: _Kind, facts: Facts) -> dict[str, Any]:
    return {name: facts[name] for name in (*kind.deciding, *kind.beside) if name in facts}


def _why(kind: _Kind, verdicts: Mapping[Part, str], before: Facts, after: Facts) -> str:
    made_of = _INPUT.get(kind.part)
    if made_of is not None and verdicts[made_of] == "changed":
        return f"The {made_of} changed."
    changed = (why for name, why in kind.beside.items() if before.get(name) != after.get(name))
    return next(filter(None, changed), kind.why)
