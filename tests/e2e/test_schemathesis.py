"""Requests that schemathesis makes of the OpenAPI document, with every check but one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.stack import RunningStack, running_stack

pytestmark = pytest.mark.e2e

_PROGRAM = ROOT / ".venv-schemathesis" / "bin" / "st"
_SETTINGS = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(scope="module")
def own_stack() -> Iterator[RunningStack]:
    """Yield a stack of its own: what others did on it would be found by requests of a chain."""
    with running_stack() as running:
        yield running


def run(own_stack: RunningStack, *options: str) -> int:
    """Return how many requests were made; fails with schemathesis's own report."""
    done = subprocess.run(
        [
            *(str(_PROGRAM), "--config-file", str(_SETTINGS), "run", str(ROOT / "stack" / "openapi.yaml")),
            *("--url", own_stack.gateway, "-H", f"X-API-Key: {own_stack.ops_key}", "--rate-limit", "auto"),
            *("--no-color", "--no-shrink", "--seed", "1", *options),
        ],
        cwd=own_stack.state,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) generated", done.stdout)
    assert found, done.stdout
    return int(found.group(1))


def test_one_check_is_given_up() -> None:
    given_up = re.findall(r"^(\w+)\.enabled = false", _SETTINGS.read_text(encoding="utf-8"), re.MULTILINE)
    assert given_up == ["unsupported_method"]


@pytest.mark.shows("B1", "B3", "B14")
def test_the_contract_holds_for_made_up_requests(own_stack: RunningStack) -> None:
    assert run(own_stack, "--phases", "examples,fuzzing", "--max-examples", "4") >= 100


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_contract_holds_for_thousands_of_requests(own_stack: RunningStack) -> None:
    assert run(own_stack, "--max-examples", "60") >= 2_000
