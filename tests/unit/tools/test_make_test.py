"""`make test` with suites named installs what these need."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.repository import ROOT


def prerequisites(arguments: str) -> str:
    """Return what `make test` needs beforehand, by make's own database of rules; nothing is run."""
    printed = subprocess.run(
        ["make", "--dry-run", "--print-data-base", "test", f"ARGS={arguments}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.search(r"^test: (.*)$", printed, re.MULTILINE)
    assert found is not None
    return found[1].strip()


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ("", "setup-all"),
        ("-k name", "setup-all"),
        ("tests/unit", ".venv/.ready"),
        ("tests/unit/local tests/property -k name -x", ".venv/.ready"),
        ("tests/unit tests/integration/triggers", "setup"),
        ("tests/unit tests/contract", "setup-all"),
        ("tests/e2e/test_pipeline.py", "setup-all"),
    ],
)
def test_suites_install_what_they_need(arguments: str, needed: str) -> None:
    assert prerequisites(arguments) == needed
