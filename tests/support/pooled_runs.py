"""Runs with `--pooler`: the product's connections to Postgres lead through a chain, and none pins a session.

The tests' own connections, and those of the owner's functions, stay direct. What a run shows is that each
statement goes through the chain, and what becomes of connections that are lost, silent or shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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
LEFT_OUT: Final = frozenset(
    (
        "tests/e2e/test_api_page.py",
        "tests/e2e/test_audit.py",
        "tests/e2e/test_backpressure.py",
        "tests/e2e/test_bad_input.py",
        "tests/e2e/test_bad_values.py",
        "tests/e2e/test_browser.py",
        "tests/e2e/test_caller_limits.py",
        "tests/e2e/test_client_package.py",
        "tests/e2e/test_foreign_objects.py",
        "tests/e2e/test_hostile_values.py",
        "tests/e2e/test_kinds_of_429.py",
        "tests/e2e/test_other_origins.py",
        "tests/e2e/test_politeness.py",
        "tests/e2e/test_receipts.py",
        "tests/e2e/test_releases.py",
        "tests/e2e/test_rendered_pages.py",
        "tests/e2e/test_request_limits.py",
        "tests/e2e/test_schemathesis.py",
        "tests/e2e/test_second_emulator.py",
        "tests/e2e/test_shared_corpora.py",
        "tests/e2e/test_typescript.py",
        "tests/faults/test_enumeration.py",
        "tests/faults/test_insisting.py",
        "tests/faults/test_invariants.py",
        "tests/faults/test_leaked_secrets.py",
        "tests/faults/test_odd_messages.py",
        "tests/faults/test_passing_time.py",
        "tests/faults/test_production_is_innocent.py",
        "tests/faults/test_proxy.py",
        "tests/faults/test_rules.py",
        "tests/faults/test_skew.py",
    )
)
"""Files whose subject is before or beside Postgres: the statements of their jobs are those of others."""


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what says nothing new through a pooler."""
    left_out = _wanted and collection_path.is_relative_to(config.rootpath)
    return (left_out and str(collection_path.relative_to(config.rootpath)) in LEFT_OUT) or None


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
