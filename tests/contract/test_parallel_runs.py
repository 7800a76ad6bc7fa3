"""The groups of a parallel run are the files that use one stack, and the slow files are named as they are."""

from __future__ import annotations

import pytest

from tests.support import parallel
from tests.support.repository import ROOT

STACKS = {"arena", "rough_stack", "stack"}


def test_every_named_file_and_folder_exists() -> None:
    named = {*parallel.OWN_GROUP, *parallel.SHARED, *parallel.FIRST}
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_files_that_use_a_running_stack_share_a_worker_and_no_others_do(
    request: pytest.FixtureRequest,
) -> None:
    """Judges the files of this run; in a whole run these are all."""
    used: dict[str, set[str]] = {}
    for item in request.session.items:
        path = item.nodeid.partition("::")[0]
        used.setdefault(path, set()).update(STACKS & set(getattr(item, "fixturenames", ())))
    assert len(used) > 0
    shared = {path for path in used if parallel.group_of(path) in parallel.SHARED}
    assert {path for path, stacks in used.items() if stacks} == shared
