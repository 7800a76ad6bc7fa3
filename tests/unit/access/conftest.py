"""Fixtures of the authorizers' tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from indexmill.access.adapters.http_membership import HttpMembership


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave no open socket to the garbage collector, which would warn of it in the middle of an import."""
    opened: list[HttpMembership] = []

    def opening(self: HttpMembership, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        opened.append(self)

    init = HttpMembership.__init__
    monkeypatch.setattr(HttpMembership, "__init__", opening)
    yield
    for each in opened:
        each.close()
    gc.collect()
