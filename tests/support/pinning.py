"""Statements with which RDS Proxy gives a client a server connection of its own until it leaves.

The conditions are those of https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html
for PostgreSQL. Stored functions that are called do not pin, whatever is in them: only the text that a client
sends is read here, including that of DO blocks.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_TEXT: Final = 16 << 10
"""Bytes of a statement's text above which it pins; bound values are not part of the text."""

_UNREAD: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMANDS: Final = {
    "SET": "a parameter is set",
    "RESET": "a parameter is reset",
    "PREPARE": "a prepared statement",
    "EXECUTE": "a prepared statement",
    "DEALLOCATE": "a prepared statement",
    "DISCARD": "session state is discarded",
    "DECLARE": "a cursor",
    "LISTEN": "a notification channel",
    "UNLISTEN": "a notification channel",
    "LOAD": "a library is loaded",
}
_TEXTS: Final = {
    r"\bset_config\s*\(": "a parameter is set",
    r"\b(?:CREATE|INTO)\s+(?:GLOBAL\s+|LOCAL\s+)?TEMP(?:ORARY)?\b": "a temporary object",
    r"\bCREATE\s+OR\s+REPLACE\s+TEMP(?:ORARY)?\b": "a temporary object",
    r"\bpg_temp\s*\.": "a temporary object",
    r"\b(?:nextval|setval|currval|lastval)\s*\(": "a sequence",
    r"\bpg_(?:try_)?advisory_(?:un)?lock(?:_shared|_all)?\s*\(": "a session's advisory lock",
}


def pins(statement: str, *, name: str = "") -> str | None:
    """Return why a statement, prepared under `name` if that is given, pins a session; None if it does not."""
    if name:
        return "a prepared statement"
    if len(statement.encode(errors="replace")) > LONGEST_TEXT:
        return f"a text of more than {LONGEST_TEXT} bytes"
    read = _UNREAD.sub(lambda found: "''" if found[0].startswith("'") else " ", statement)
    for part in read.split(";"):
        words = part.split(None, 1)
        if len(words) == 2 and words[0].upper() in _COMMANDS:
            return _COMMANDS[words[0].upper()]
    return next((why for text, why in _TEXTS.items() if re.search(text, read, re.IGNORECASE)), None)
