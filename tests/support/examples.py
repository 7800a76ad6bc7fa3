"""Examples of hypothesis: drawn without the constants of local modules.

Hypothesis parses every imported local module for them, ten seconds in a fresh clone, and draws from those
that happen to be imported: the examples of a test would depend on the tests that ran before it.
"""

from __future__ import annotations

import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Let hypothesis, where a collected test imported it, find no constants: its own hook looks for them."""
    if "hypothesis" in sys.modules:
        from hypothesis.internal.conjecture import providers

        providers._get_local_constants = providers.Constants  # type: ignore[attr-defined]
