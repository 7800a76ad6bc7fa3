"""The pipeline with its callers' actions on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from tests.support.orchestrator import OrchestratorHarness


@pytest.fixture
def harness(database_url: str) -> Iterator[OrchestratorHarness]:
    """Yield it with everything reachable and nothing submitted."""
    database = Database(database_url)
    yield OrchestratorHarness(JobStore(database))
    database.close()
