"""A real Postgres for tests: one server a session, one migrated database a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local.backends.postgres import EmbeddedPostgres, create_database, drop_database
from sql.migrate import limit_database, migrate, owner_connection
from tests.support import pooled_runs
from tests.support.pgbouncer import NoPgBouncer, program
from tests.support.pooler import Chain, chain

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the server's URL; a database `migrated` on it has every migration."""
    server = EmbeddedPostgres(Path(tmp_path_factory.mktemp("postgres")))
    url = server.start()
    try:
        migrate(create_database(url, "migrated"))
        with pooled_runs.before(urlsplit(url).port or 0):
            yield url
    finally:
        server.stop()
        server.delete()


@pytest.fixture(scope="session")
def postgres_chain(postgres_server: str) -> Iterator[Chain]:
    """Yield a chain before the server; skipped where PgBouncer cannot be had."""
    try:
        program()
    except NoPgBouncer as error:
        pytest.skip(str(error))
    with chain(urlsplit(postgres_server).port or 0) as made:
        yield made


@pytest.fixture
def database_url(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a fresh migrated database."""
    name = f"test_{next(_numbers)}"
    url = create_database(postgres_server, name, template="migrated")
    # The settings of a database are not copied with it.
    with owner_connection(url) as connection:
        limit_database(connection)
    yield url
    drop_database(postgres_server, name)
