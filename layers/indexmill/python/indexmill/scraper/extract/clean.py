"""Removal of invisible characters from text. Every pass is linear in the length."""

from __future__ import annotations

import re
from typing import Final

MAX_TITLE: Final = 500

# Control characters except tab and line feed; soft hyphen, zero-width space, word joiner, byte order mark,
# direction marks and overrides, line separators, tags. The zero-width (non-)joiners shape Persian, Indic and
# emoji text, so a body keeps them.
_UNSEEN_CLASS: Final = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSEEN: Final = re.compile(f"[{_UNSEEN_CLASS}]")
_UNSEEN_IN_TITLE: Final = re.compile(f"[{_UNSEEN_CLASS}\u200c\u200d]")
_UNSEEN_ASCII: Final = dict.fromkeys((*range(9), *range(11, 32), 127))
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_TRAILING: Final = (" \n", "\t\n")


def clean_text(text: str) -> str:
    """Return `text` without unseen characters, trailing blanks and runs of empty lines."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.translate(_UNSEEN_ASCII) if text.isascii() else _UNSEEN.sub("", text)
    if any(mark in text for mark in _TRAILING):
        text = "\n".join([line.rstrip() for line in text.split("\n")])
    return _BLANK_LINES.sub("\n\n", text).strip()


def clean_title(text: str | None) -> str | None:
    """Return `text` as one line of at most 500 characters; None when nothing is left."""
    if not text:
        return None
    line = " ".join(_UNSEEN_IN_TITLE.sub(" ", text[: 4 * MAX_TITLE]).split())
    return line[:MAX_TITLE].rstrip() or None
