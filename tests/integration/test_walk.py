"""The walk of a job in docs/architecture.md lists the files whose code one job runs, and stays short."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.repository import ROOT
from tools.reading import importers, with_one_importer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SUBMIT, JOB, ONE_IMPORTER = 26, 72, 0.28
"""Most files of a submit, of a whole job, and the largest share of modules that one other module imports.

A feature that adds a file to the way of a job takes one away.
"""
_ITEM = re.compile(r"^\d+\. `([^`]+)`: \S", re.MULTILINE)


def parts(text: str) -> list[set[str]]:
    """Return the files below each heading."""
    return [set(_ITEM.findall(part)) for part in text.split("\n### ")[1:]]


def walk() -> list[set[str]]:
    """Return the files of each part of the walk."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return parts(page.split("\n## The walk of one job\n")[1].split("\n## ")[0])


def test_the_walk_is_what_one_job_runs() -> None:
    # In a process of its own: the functions change the environment and keep clients open.
    command = [sys.executable, "-m", "tests.perf.reading", "--walk"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    assert walk() == parts(done.stdout), "python -m tests.perf.reading --walk prints the new list"


def test_every_file_of_the_walk_exists_and_is_named_once() -> None:
    roots = [ROOT, ROOT / "layers/indexmill/python/indexmill"]
    named = [name for part in walk() for name in part]
    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []
    assert len(set(named)) == len(named) > 30


def test_the_walk_and_the_number_of_small_modules_stay_within_their_ceilings() -> None:
    submit, *_ = files = walk()
    assert len(submit) <= SUBMIT
    assert sum(map(len, files)) <= JOB
    assert len(with_one_importer(ROOT)) / len(importers(ROOT)) <= ONE_IMPORTER
