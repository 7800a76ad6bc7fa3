"""The groups of a parallel run are the files that use one stack, and the slow files are named as they are."""

from __future__ import annotations

import os

import pytest

from tests.support import parallel
from tests.support.cpu_record import Process, processes, used
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


def test_cpu_of_processes_that_ended_counts_once() -> None:
    worker, child, stack = (10, 1), (11, 5), (12, 6)
    before = {worker: Process(1, 2.0), child: Process(10, 1.0), stack: Process(1, 4.0)}
    ended = {worker: Process(1, 3.5)}
    assert used(before, before) == 0
    assert used({}, before) == 7.0
    assert used(before, ended) == 0.5, "of 1.5 s the worker waited for 1.0; nobody waited for the stack"
    again = {worker: Process(1, 2.0), (11, 9): Process(10, 0.3), stack: Process(1, 4.25)}
    assert used({worker: before[worker], stack: before[stack]}, again) == pytest.approx(0.55)


def test_cpu_of_this_process_is_read() -> None:
    found = {key[0]: process for key, process in processes().items()}
    assert found[os.getpid()].parent == os.getppid()
    assert found[os.getpid()].cpu_s == pytest.approx(sum(os.times()[:4]), abs=0.5)
