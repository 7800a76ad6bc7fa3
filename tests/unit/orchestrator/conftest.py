"""The pipeline with its callers' actions on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.platform.postgres.database import Database
from tests.unit.orchestrator.verbs import Mill


@pytest.fixture
def mill(database_url: str) -> Iterator[Mill]:
    """Yield it with everything reachable and nothing submitted."""
    database = Database(database_url)
    yield Mill(PostgresJobs(database))
    database.close()
