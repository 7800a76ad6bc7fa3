"""One caller's backlog does not hold back another's job, and promises of when a job ends are kept.

Figures are in docs/decisions/0010-admission.md; `python -m tests.perf.fairness` prints them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest

from tests.perf.fairness import Site, warm_site

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Yield a warm stack with its default quotas."""
    with warm_site() as site:
        yield site


@pytest.mark.parametrize("batch", [100, 1])
def test_promises_are_kept_and_are_not_idle(site: Site, batch: int) -> None:
    promises = site.promises(batch)
    assert promises.kept >= 0.95, promises
    assert promises.slack <= 3, promises


def test_a_job_behind_a_backlog_ends_nearly_as_soon_as_alone(site: Site) -> None:
    fairness = site.fairness()
    assert statistics.median(fairness.times_solo) <= 3, fairness
    assert statistics.median(fairness.others) <= 30, fairness
