"""Tiers and quotas as people write them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from indexmill.contracts.identity import CallerContext
from indexmill.orchestrator.admission.admit import Quota, admission_tier
from indexmill.orchestrator.settings import OrchestratorSweeperSettings
from indexmill.orchestrator.store.admission import INTERNAL, JobLimits
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
    assert [limits.of(tier).max_active for tier in ("free", "pro", "enterprise")] == [2, 5, 100]
    assert [limits.of(tier).chunks_per_day for tier in ("free", "pro", "enterprise")] == [
        1_000,
        10_000,
        1_000_000,
    ]
    assert limits.max_pending == 10_000
    # One caller alone never fills the window, not even one without a quota.
    assert limits.of(INTERNAL) == Quota(max_active=limits.window // 2)


def test_a_share_bounds_every_quota_and_changes_none_below_it() -> None:
    quotas = {"pro": Quota(max_active=5, burst=7), "enterprise": Quota(max_active=100, chunks_per_day=9)}
    limits = JobLimits(quotas, window=40, per_caller=20)
    assert limits.of("pro") == quotas["pro"]
    assert limits.of("enterprise") == Quota(max_active=20, chunks_per_day=9)
    assert limits.of("free") == Quota(max_active=20)
    assert JobLimits(quotas).of("enterprise") == quotas["enterprise"]
