"""Tiers and quotas as people write them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from indexmill.contracts.identity import CallerContext
from indexmill.orchestrator.admission.admit import INTERNAL, Limits, Quota, admission_tier
from indexmill.orchestrator.settings import OrchestratorSweeperSettings
from tests.support.function_env import environment


def test_a_quota_reads_as_it_is_written() -> None:
    quota = Quota.parse("max_active=2, burst=20,chunks_per_day=1000")
    assert quota == Quota(max_active=2, burst=20, chunks_per_day=1000)
    assert quota.max_per_hour is None
    assert Quota.parse("unlimited") == Quota()


@pytest.mark.parametrize("text", ["max_active", "max_active=0", "max_active=many", "max_actve=2", "2"])
def test_a_quota_that_says_nothing_sensible_is_an_error(text: str) -> None:
    with pytest.raises(ValidationError):
        Quota.parse(text)


@pytest.mark.parametrize(
    ("reported", "tier"),
    [
        (None, "free"),
        ("", "free"),
        ("free", "free"),
        ("Pro", "pro"),
        ("premium", "pro"),
        ("enterprise", "enterprise"),
        ("platinum", "free"),
    ],
)
def test_a_tier_is_known_or_free(reported: str | None, tier: str) -> None:
    assert admission_tier(CallerContext("ann", tier=reported)) == tier
    assert admission_tier(CallerContext("ann", tier=reported, internal=True)) == INTERNAL


def test_the_template_knows_every_tiers_quota() -> None:
    limits = OrchestratorSweeperSettings.from_environment(environment("OrchestratorSweeper")).limits
    assert [limits.of(tier).max_active for tier in ("free", "pro", "enterprise")] == [2, 5, 20]
    assert [limits.of(tier).chunks_per_day for tier in ("free", "pro", "enterprise")] == [
        1_000,
        10_000,
        100_000,
    ]
    assert limits.of(INTERNAL) == Limits().of("free") == Quota()
    assert limits.max_pending == 10_000
    # One caller alone never fills the window.
    assert limits.window > 10 * (limits.of("enterprise").max_active or 0)
