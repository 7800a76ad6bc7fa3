"""Consumer of the callback queue: applies what stages report."""

from __future__ import annotations

from indexmill.orchestrator.settings import OrchestratorResultsSettings
from indexmill.orchestrator.wiring import build_results

handler = build_results(OrchestratorResultsSettings.from_environment())
