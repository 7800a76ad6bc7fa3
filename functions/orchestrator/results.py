"""Applies what stages report, from the callback queue, and goes on with what the HTTP functions hand over."""

from __future__ import annotations

from typing import Any

from indexmill.orchestrator.settings import OrchestratorResultsSettings
from indexmill.orchestrator.wiring import build_results

_reports, _take_over = build_results(OrchestratorResultsSettings.from_environment())


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Handle an SQS event, or `{"take_over": [ids of outbox rows]}`."""
    if "take_over" in event:
        return {"taken_over": _take_over(event["take_over"])}
    return _reports(event, context)
