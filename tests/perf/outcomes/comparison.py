"""Comparison of two records of the same orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return how two records of one order differ, as "path: before | after"."""
    if before["chunk_faults"] or after["chunk_faults"]:
        before, after = _ends(before), _ends(after)
    return list(_walk("", before, after))


def _ends(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must agree although a fault hit chunk work: where jobs end, and what search finds."""
    return {
        "order": record["order"],
        "class": record["class"],
        "chunk_faults": record["chunk_faults"],
        "statuses": [job["status"] for job in record["jobs"]],
        "failed stages": [job["failed_stage"] for job in record["jobs"]],
        "contents": [
            [document["url"], document["content_sha256"], document["chunk_count"]]
            for document in record["documents"]
            if document["published"] is not None
        ],
        "searches": record["searches"],
    }


def _walk(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _walk(f"{path}.{name}" if path else name, before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _walk(f"{path}[{at}]", one, other)
    elif before != after:
        yield f"{path}: {_short(before)} | {_short(after)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
