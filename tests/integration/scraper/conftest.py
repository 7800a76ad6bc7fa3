"""Sites and fetchers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from indexmill.scraper.adapters.http_fetcher import FetchLimits, HttpFetcher
from tests.integration.scraper.site import Site, running_site

LIMITS = FetchLimits(max_bytes=1_000_000, connect_s=2.0, read_s=0.3)


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that the fetcher may visit."""
    with running_site() as running:
        yield running


@pytest.fixture
def canary() -> Iterator[Site]:
    """A private service on the same machine that must not be reached."""
    with running_site() as running:
        running.page("/", "secret")
        yield running


@pytest.fixture
async def fetcher(site: Site) -> AsyncIterator[HttpFetcher]:
    made = HttpFetcher(
        user_agent="IndexmillBot/1.0 (test)", allowed_hosts=frozenset({site.host}), limits=LIMITS
    )
    yield made
    await made.close()
