"""Consumer of the callback queue: applies the results of stages."""

from __future__ import annotations

from indexmill.orchestrator.settings import OrchestratorResultsSettings
from indexmill.orchestrator.wiring import build_results

handler = build_results(OrchestratorResultsSettings.from_environment())
