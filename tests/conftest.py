"""Fixtures for every test."""

from __future__ import annotations

pytest_plugins = [
    "tests.support.collection",
    "tests.support.pooled_runs",
    "tests.support.ministack",
    "tests.support.postgres",
    "tests.support.parallel",
    "tests.support.cpu_record",
    "tests.support.examples",
]
