"""Examples of hypothesis: drawn without the constants of local modules.

Hypothesis parses every imported local module for them, ten seconds in a fresh clone, and draws from those
that happen to be imported: the examples of a test would depend on the tests that ran before it.
"""

from __future__ import annotations

import sys
from functools import cached_property

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Replace the provider of examples where a collected test has imported hypothesis."""
    if "hypothesis.internal.conjecture.providers" not in sys.modules:
        return
    from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
    from hypothesis.internal.constants_ast import Constants

    class Provider(HypothesisProvider):
        @cached_property
        def _local_constants(self) -> Constants:
            return Constants()

    AVAILABLE_PROVIDERS["hypothesis"] = Provider
