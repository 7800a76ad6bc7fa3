"""Consumer of every dead-letter queue."""

from __future__ import annotations

from typing import Any

from indexmill.orchestrator.settings import OrchestratorDeadLettersSettings
from indexmill.orchestrator.wiring import build_dead_letters

_bury = build_dead_letters(OrchestratorDeadLettersSettings.from_environment())


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Store the dead letters and fail their jobs."""
    return _bury(event)
