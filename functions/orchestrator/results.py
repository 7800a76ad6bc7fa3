"""Consumer of the callback queue: applies the results of stages."""

from indexmill.orchestrator.settings import OrchestratorResultsSettings
from indexmill.orchestrator.wiring import build_results
from indexmill.platform.observability import entry_point

handler = entry_point(build_results(OrchestratorResultsSettings.from_environment()))
