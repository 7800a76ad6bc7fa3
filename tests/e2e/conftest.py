"""Stacks for the whole session, each started when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from indexmill.client import Client
from tests.support.stack import RunningStack, running_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[RunningStack]:
    """Yield a stack on which nothing is broken on purpose; its functions read their secrets as on AWS."""
    with running_stack(options=["--secrets-manager"]) as running:
        yield running


@pytest.fixture(scope="session")
def rough_stack() -> Iterator[RunningStack]:
    """Yield a second stack with short time limits; tests inject faults into it and remove their own."""
    with running_stack("IntegrationTimeoutSeconds=6", "MembershipBreakerSeconds=3") as running:
        yield running


@pytest.fixture(scope="session")
def client(stack: RunningStack) -> Iterator[Client]:
    """Yield the first caller's client."""
    with stack.client() as opened:
        yield opened


@pytest.fixture(scope="session")
def http(stack: RunningStack) -> Iterator[httpx.Client]:
    """Yield plain HTTP with the first caller's key."""
    with stack.http() as opened:
        yield opened


@pytest.fixture(scope="session")
def ops(stack: RunningStack) -> Iterator[httpx.Client]:
    """Yield plain HTTP with an internal caller's key."""
    with stack.http(stack.ops_key) as opened:
        yield opened
