"""Hosts on functions that each test writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from local.compute.launcher import LaunchMode
from tests.integration.compute.harness import Lab


@pytest_asyncio.fixture(params=["fork", "exec"])
async def lab(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """Yield a lab, once with each way of starting a process. No process is left at the end."""
    mode: LaunchMode = request.param
    made = Lab(tmp_path, mode)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def forking(tmp_path: Path) -> AsyncIterator[Lab]:
    """Yield a lab for tests that do not depend on how processes start."""
    made = Lab(tmp_path)
    yield made
    await made.close()
