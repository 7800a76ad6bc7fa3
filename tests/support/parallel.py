"""Parallel test runs (pytest-xdist): which tests share a worker, which start first, how many workers run.

A file runs on one worker, so that its module fixtures are made once. Files that use the same running stack
are one group, so that it is started once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

_MOST_WORKERS: Final = 6
"""Each worker may run a Postgres, a MiniStack and a stack; the groups below bound the whole from there on."""

OWN_GROUP: Final = frozenset(
    (
        "tests/e2e/test_audit.py",
        "tests/e2e/test_backpressure.py",
        "tests/e2e/test_caller_limits.py",
        "tests/e2e/test_hostile_values.py",
        "tests/e2e/test_kinds_of_429.py",
        "tests/e2e/test_politeness.py",
        "tests/e2e/test_receipts.py",
        "tests/e2e/test_releases.py",
        "tests/e2e/test_rendered_pages.py",
        "tests/e2e/test_request_limits.py",
        "tests/e2e/test_schemathesis.py",
        "tests/e2e/test_second_emulator.py",
        "tests/e2e/test_shared_corpora.py",
        "tests/faults/test_insisting.py",
        "tests/faults/test_model.py",
        "tests/faults/test_passing_time.py",
        "tests/faults/test_production_is_innocent.py",
        "tests/faults/test_invariants.py",
        "tests/faults/test_proxy.py",
        "tests/faults/test_restore.py",
        "tests/faults/test_rules.py",
        "tests/faults/test_skew.py",
    )
)
"""Files of a shared folder that do not use its stack."""
SHARED: Final = ("tests/faults/", "tests/e2e/")
"""Folders whose other files share one stack."""

FIRST: Final = (
    *SHARED,
    "tests/integration/triggers/test_worker_crashes.py",
    "tests/integration/upgrade/test_upgrade.py",
    "tests/integration/scraper/test_isolation.py",
    "tests/e2e/test_second_emulator.py",
    "tests/integration/test_counted_calls.py",
    "tests/integration/test_migration_resource.py",
    "tests/e2e/test_backpressure.py",
    "tests/integration/scraper/test_memory.py",
    "tests/e2e/test_receipts.py",
    "tests/e2e/test_hostile_values.py",
    "tests/e2e/test_schemathesis.py",
    "tests/integration/orchestrator/test_postgres_hiccups.py",
    "tests/faults/test_restore.py",
    "tests/integration/upgrade/test_taken_over.py",
    "tests/e2e/test_request_limits.py",
    "tests/e2e/test_releases.py",
    "tests/contract/test_layers.py",
    "tests/faults/test_model.py",
    "tests/integration/orchestrator/test_waiting_jobs.py",
)
"""The slowest groups, slowest first: started last, one of them would run alone at the end."""


def group_of(nodeid: str) -> str:
    """Return the group whose tests run on one worker: a folder with a shared stack, else the test's file."""
    path = nodeid.partition("::")[0]
    if path in OWN_GROUP:
        return path
    return next((folder for folder in SHARED if path.startswith(folder)), path)


class GroupScheduling(LoadScopeScheduling):
    """Hands out whole groups, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers for `-n auto`: two more than there are cores, since most tests mostly wait.

    None for a few files, for `-k` and for `-s`, since each worker imports all tests and shows no output; and
    none for a path that does not exist, which only pytest itself reports.
    """
    if config.option.keyword or config.option.capture == "no":
        return 0
    paths = [config.invocation_params.dir / str(each).partition("::")[0] for each in config.args]
    if not all(path.exists() for path in paths) or (len(paths) <= 2 and all(map(Path.is_file, paths))):
        return 0
    return min(_cores() + 2, _MOST_WORKERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slowest groups first where groups are distributed."""
    if hasattr(config, "workerinput"):
        places = {name: place for place, name in enumerate(FIRST)}
        items.sort(key=lambda item: places.get(group_of(item.nodeid), len(places)))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
