"""Two releases on one database and the same queues."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from local.backends.ministack import MiniStack
from local.backends.postgres import create_database, drop_database
from tests.support.releases import PREVIOUS, Release, extract
from tests.support.repository import ROOT
from tests.support.upgrade import BROKEN_CHAIN, Releases, Site, World, served_site

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served_site() as site:
        yield site


@pytest.fixture(scope="module")
def releases(
    site: Site, ministack: MiniStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Releases]:
    """Yield the previous release and this one."""
    tree = extract(PREVIOUS, tmp_path_factory.mktemp(PREVIOUS))
    log = tmp_path_factory.mktemp("releases") / "log"
    old, new = (
        Release(name, folder, ministack.endpoint, site.address, log)
        for name, folder in ((PREVIOUS, tree), ("this", ROOT))
    )
    yield old, new
    old.close()
    new.close()


@pytest.fixture
def world(database_url: str, releases: Releases, site: Site) -> Iterator[World]:
    """Both releases on this release's schema and queues."""
    world = World(database_url, f"upgrade-{next(_numbers)}", releases, site)
    world.create(world.new)
    world.deploy(world.old)
    yield world
    assert world.rows(BROKEN_CHAIN) == []


@pytest.fixture
def before(postgres_server: str, releases: Releases, site: Site) -> Iterator[World]:
    """The older release alone, on its own schema and queues."""
    number = next(_numbers)
    url = create_database(postgres_server, f"upgrade_{number}")
    world = World(url, f"upgrade-{number}", releases, site)
    world.old.migrate(url)
    world.create(world.old)
    yield world
    assert world.rows(BROKEN_CHAIN) == []
    drop_database(postgres_server, f"upgrade_{number}")
