"""One stack for all that is broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.faults.invariants.report import violations, wait_until_idle
from tests.faults.arena import VISIBILITY_S, Arena
from tests.support.stack import open_folder, running_stack


@pytest.fixture(scope="session")
def arena() -> Iterator[Arena]:
    """Yield a stack whose faults can be switched."""
    with open_folder() as site, running_stack(faults="on", site_root=site) as stack:
        made = Arena(stack, site)
        yield made
        made.cloud.close()


@pytest.fixture
def kept(arena: Arena) -> Iterator[Arena]:
    """Yield the stack with short visibility timeouts; after the test, every invariant is checked."""
    arena.cloud.set_visibility(VISIBILITY_S)
    before = len(arena.accepted)
    yield arena
    arena.control.arm()
    arena.control.set_toxics()
    quiet = wait_until_idle(arena.cloud, 60)
    assert quiet.reached, quiet
    assert [str(each) for each in violations(arena.cloud, arena.accepted[before:])] == []
