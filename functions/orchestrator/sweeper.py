"""Sweeper, run every minute: relays unsent messages, redispatches lost ones, deletes old rows."""

from __future__ import annotations

from typing import Any

from indexmill.orchestrator.settings import OrchestratorSweeperSettings
from indexmill.orchestrator.wiring_sweep import build_sweeper

_sweep = build_sweeper(OrchestratorSweeperSettings.from_environment())


def handler(_event: dict[str, Any], _context: Any) -> dict[str, int]:
    """Do one tick."""
    return _sweep()
