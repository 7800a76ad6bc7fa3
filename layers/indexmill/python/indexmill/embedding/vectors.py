"""Vectors for texts by key, each different text embedded once."""

from __future__ import annotations

from collections.abc import Mapping

from indexmill.embedding.ports import Embedder, Vector


def vectors_of(embedder: Embedder, texts: Mapping[str, str], *, timeout_s: float) -> dict[str, Vector]:
    """Return the vector of each key's text in one call to the embedder, or none for no texts."""
    if not texts:
        return {}
    unique = list(dict.fromkeys(texts.values()))
    by_text = dict(zip(unique, embedder.embed(unique, timeout_s=timeout_s), strict=True))
    return {key: by_text[text] for key, text in texts.items()}
