"""One real AWS endpoint (MiniStack) for the whole session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.backends.ministack import MiniStack

ACCOUNT, REGION = "123456789012", "eu-west-1"
PYTHON = Path(__file__).parents[2] / ".venv-ministack" / "bin" / "python"


@pytest.fixture(scope="session")
def ministack_python() -> Path:
    """The interpreter that has MiniStack; `make setup` makes it."""
    assert PYTHON.exists(), f"{PYTHON} is missing"
    return PYTHON


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory, ministack_python: Path) -> Iterator[MiniStack]:
    """A running endpoint; each test makes queues and buckets of its own."""
    with asyncio.Runner() as runner:
        folder = tmp_path_factory.mktemp("ministack")
        server = MiniStack(folder, ministack_python, account_id=ACCOUNT, region=REGION)
        runner.run(server.start())
        yield server
        runner.run(server.stop())
