"""No file of the repository, and none that is deployed, has what looks like a real secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT, inside, text_files

# Put together from parts, so that this file is clean itself.
PATTERNS = {
    "AWS access key": r"\b(?:AK" + r"IA|AS" + r"IA)[0-9A-Z]{16}\b",
    "AWS secret key": r"(?i)aws_?secret_?access_?key[\"']?\s*[=:]\s*[\"']?[0-9A-Za-z/+]{40}\b",
    "private key": r"-----BEGIN (?:[A-Z]+ )?PRIV" + r"ATE KEY-----",
    "GitHub token": r"\bgh[pousr]_" + r"[0-9A-Za-z]{36}\b|\bgithub_" + r"pat_\w{50,}",
    "GitLab token": r"\bglp" + r"at-[\w-]{20}",
    "Slack token": r"\bxox" + r"[abprs]-[0-9A-Za-z-]{20,}",
    "key of an API": r"\bsk-" + r"(?:proj-|ant-)?[0-9A-Za-z_-]{32,}",
    "Google key": r"\bAI" + r"za[\w-]{35}\b",
    "JSON web token": r"\bey" + r"J[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}",
    "password in a URL": r"\b[a-z][a-z0-9+.-]*://[\w.-]+:[^\s:/@\"'<>{}$\\]{16,}@[\w.-]+",
}
EXAMPLES = {
    "AWS access key": "AK" + "IA" + "QWERTYUIOPASDF12",
    "AWS secret key": "aws_secret_access_key = " + "aB3x" * 10,
    "private key": "-----BEGIN RSA PRIV" + "ATE KEY-----",
    "GitHub token": "gh" + "p_" + "a1B2" * 9,
    "GitLab token": "glp" + "at-" + "a1B2" * 5,
    "Slack token": "xox" + "b-" + "123456789012-abcdefghij",
    "key of an API": "sk" + "-" + "a1B2" * 8,
    "Google key": "AI" + "za" + "a1B2c" * 7,
    "JSON web token": "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0." + "a1B2" * 6,
    "password in a URL": "postgresql://owner:" + "a1B2" * 5 + "@db.acme.org/x",
}


def secrets(texts: dict[Path, str]) -> list[str]:
    """Return the files and lines in which a pattern occurs, without the text."""
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {name}"
        for path, text in texts.items()
        for name, pattern in PATTERNS.items()
        for match in re.finditer(pattern, text)
    ]


@pytest.mark.shows("S18")
def test_no_file_of_the_repository_has_a_secret() -> None:
    assert secrets({Path(inside(path)): text for path, text in text_files().items()}) == []


@pytest.mark.shows("S18")
def test_no_artefact_that_was_built_has_a_secret() -> None:
    """Those of sam build, where there are any; what they are made from is in the test above."""
    built = ROOT / ".aws-sam" / "build"
    if not built.is_dir():
        pytest.skip("nothing is built (make build)")
    files = [path for path in built.rglob("*") if path.is_file() and path.stat().st_size < 5_000_000]
    assert secrets({path.relative_to(ROOT): path.read_text("latin-1") for path in files}) == []


@pytest.mark.parametrize("name", PATTERNS)
def test_a_secret_of_each_kind_is_found(name: str) -> None:
    found = secrets({Path("settings.py"): f"first line\nvalue = '{EXAMPLES[name]}'\n"})
    assert f"settings.py:2: {name}" in found
