"""Workers crash repeatedly while they process records: nothing is lost, shared or counted wrongly."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.triggers.delivery_soak import Size, Soak
from tests.integration.triggers.harness import Queue
from tests.integration.triggers.soak_ledger import Figures

log = logging.getLogger(__name__)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds its own processes in /proc")


def verdict(figures: Figures, least_deaths: int, at_once: int) -> None:
    log.info("%s", figures)
    assert figures.lost == []
    assert figures.overlaps == []
    assert figures.wrong_counts == []
    assert figures.settled_twice == []
    assert figures.deaths.total() >= least_deaths, figures
    assert figures.at_once >= at_once, figures
    assert figures.most_receives > 2, figures


async def test_nothing_is_lost_or_shared_while_workers_die(
    queue: Callable[..., Queue], tmp_path: Path
) -> None:
    size = Size(messages=400, ill_fated=0.04, kills_each_s=4, visibility_s=2)
    # Eight run at once here too, unless other tests use the cores.
    verdict(await Soak(size, queue(size.visibility_s), tmp_path).run(limit_s=60), 10, 5)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_nothing_is_lost_or_shared_in_twenty_thousand_messages(
    queue: Callable[..., Queue], tmp_path: Path
) -> None:
    size = Size(messages=20_000, ill_fated=0.05, kills_each_s=2)
    verdict(await Soak(size, queue(size.visibility_s), tmp_path).run(limit_s=1000), 500, size.environments)
