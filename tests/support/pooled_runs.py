"""Runs with `--pooler`: the product's connections to Postgres lead through a chain, and none pins a session.

The tests' own connections, and those of the owner's functions, stay direct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from indexmill.platform.postgres.database import Database
from tests.support.pgbouncer import NoPgBouncer, program
from tests.support.pooler import Chain, chain

_CHAINS: Final[dict[int, Chain]] = {}
"""Running chains of this process by the port of their Postgres."""
_read: Final[dict[int, int]] = {}
"""Lines of their reports that were read."""
_wanted = False
"""Whether this is such a run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pooler", action="store_true", help="connect to Postgres through PgBouncer")


def pytest_configure(config: pytest.Config) -> None:
    """Begin a run; without PgBouncer and without a source of it the run ends here, as passed."""
    global _wanted  # noqa: PLW0603 - one run a process
    _wanted = bool(config.getoption("--pooler"))
    if _wanted:
        try:
            program()
        except NoPgBouncer as error:
            pytest.exit(f"skipped, nothing was run through a pooler: {error}", returncode=0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a session of its own."""
    if _wanted:
        direct = [item for item in items if item.get_closest_marker("direct")]
        config.hook.pytest_deselected(items=direct)
        items[:] = [item for item in items if not item.get_closest_marker("direct")]


@contextmanager
def before(postgres_port: int) -> Iterator[Chain | None]:
    """Run a chain before the server on `postgres_port`, for the product only; None without `--pooler`."""
    if not _wanted:
        yield None
        return
    with chain(postgres_port) as made:
        _CHAINS[postgres_port], _read[postgres_port] = made, 0
        try:
            yield made
        finally:
            del _CHAINS[postgres_port]


def pooled(url: str) -> str:
    """Return the address that the product gets for a server's URL."""
    found = _CHAINS.get(urlsplit(url).port or 0)
    return found.url(url) if found else url


@pytest.fixture(scope="session", autouse=True)
def _pooled_databases() -> Iterator[None]:
    """Let every `Database` that is made from a server's URL connect to the chain before it."""
    with pytest.MonkeyPatch.context() as patch:
        if _wanted:
            patch.setattr(Database, "__init__", _leading(Database.__init__))
        yield


def _leading(make: Callable[..., None]) -> Callable[..., None]:
    def made(self: Database, url: str, **options: Any) -> None:
        make(self, pooled(url), **options)

    return made


@pytest.fixture(autouse=True)
def _nothing_pins() -> Iterator[None]:
    """Fail the test during which a refused or pinning statement was reported."""
    yield
    reported = []
    for port, made in _CHAINS.items():
        lines = made.reported()
        reported += lines[_read[port] :]
        _read[port] = len(lines)
    assert reported == []
