"""Everything at once, for minutes: `make soak`, or SOAK_KILLS=1000 make soak."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from local.faults.cloud import Cloud
from local.faults.soak import Counts, Plan, Soak
from local.faults.soak_report import line, lines
from tests.support.stack import open_folder, running_stack

KILLS = int(os.environ.get("SOAK_KILLS", "300"))
MINUTES = KILLS / 12
pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.timeout(int(60 * MINUTES) + 900)]


@pytest.fixture
def site() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def test_nothing_is_lost_stuck_wrong_or_twice(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(jobs=1000, kills=KILLS, minutes=MINUTES)
    last = [-30.0]

    def watch(counts: Counts) -> None:
        if counts.seconds - last[0] >= 30:
            last[0] = counts.seconds
            with capsys.disabled():
                print(line(plan, counts))

    with running_stack("QuotaEnterprise=unlimited", faults="on", site_root=site) as stack:
        cloud = Cloud(asdict(stack))
        outcome = Soak(cloud, site, plan, watch).run()
        cloud.close()
    with capsys.disabled():
        print("\n" + "\n".join(f"  {each}" for each in lines(outcome)))
    assert outcome.idle
    assert [str(each) for each in outcome.violations] == []
    assert len(outcome.counts.accepted) >= plan.jobs
    assert outcome.counts.kills >= plan.kills
    assert outcome.figures["executions_per_job"] <= 1.5
    assert outcome.figures["embeddings_per_chunk"] <= 1.2
    assert outcome.figures["done_percent"] >= 99.5
