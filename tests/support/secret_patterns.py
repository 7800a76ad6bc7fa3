"""Patterns of real secrets, and where they occur."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# Put together from parts, so that this file is clean itself.
PATTERNS: Final = {
    "AWS access key": r"\b(?:AK" + r"IA|AS" + r"IA)[0-9A-Z]{16}\b",
    "AWS secret key": r"(?i)secret_?(?:access_?)?key[\"']?\s*[=:]\s*[\"']?[0-9a-z/+]{40}(?![0-9a-z/+=])",
    "private key": r"-----BEGIN (?:[A-Z]+ )*PRIV" + r"ATE KEY(?: BLOCK)?-----",
    "GitHub token": r"\bgh[pousr]_" + r"[0-9A-Za-z]{36}\b|\bgithub_" + r"pat_\w{50,}",
    "GitLab token": r"\bglp" + r"at-[\w-]{20}",
    "Slack token": r"\bxox" + r"[abeprs][.-][\w.-]{20,}|\bxa" + r"pp-\d-[\w-]{20,}",
    "Slack address": r"\bslack\.com/serv" + r"ices/T\w+/B\w+/\w{20,}",
    "key of an API": r"\bsk-" + r"(?:proj-|ant-)?[0-9A-Za-z_-]{32,}|\bh" + r"f_[0-9A-Za-z]{30,}",
    "key of a payment": r"\b[sr]k_" + r"live_[0-9A-Za-z]{20,}",
    "key of a mailer": r"\bS" + r"G\.[\w-]{22}\.[\w-]{43}",
    "token of a registry": r"\bnp" + r"m_[0-9A-Za-z]{36}|\bpy" + r"pi-[\w-]{50,}|\bdckr_" + r"pat_[\w-]{20,}",
    "Google key": r"\bAI" + r"za[\w-]{35}\b|\bGOC" + r"SPX-[\w-]{28}",
    "JSON web token": r"\bey" + r"J[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}",
    "password in a URL": r"\b[a-z][a-z0-9+.-]*://[\w.-]+:[^\s:/@\"'<>{}$\\]{8,}@[\w.-]+",
    "password of a connection": r"\bpassword=[^\s'\"{}()$<>%]{16,}",
    # A name of a secret, then letters with digits: neither a call nor a part of something longer.
    "named secret": r"(?i)(?:secret|token|passw(?:or)?d|(?:api|access|account|token)_?key)[\w-]*[\"']?"
    r"\s{0,3}[=:]\s{0,3}[\"']?(?=[a-z_+/-]*[0-9])(?=[0-9_+/-]*[a-z])[0-9a-z+/_-]{32,}(?![\w.:*(\[{-])",
}


def secrets(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names and lines of the texts in which a pattern occurs, without what it found."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {kind}"
        for name, text in texts
        for kind, pattern in PATTERNS.items()
        for match in re.finditer(pattern, text)
    ]
