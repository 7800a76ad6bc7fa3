"""Replacement of characters in text that a database does not accept."""

from __future__ import annotations

from typing import overload


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...
def storable(text: str | None) -> str | None:
    """Return `text` with the characters that no store takes (NUL, lone surrogates) replaced one by one."""
    return None if text is None else text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
