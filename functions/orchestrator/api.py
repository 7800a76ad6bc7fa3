"""REST endpoints of the Orchestrator."""

from indexmill.orchestrator.settings import OrchestratorApiSettings
from indexmill.orchestrator.wiring import build_api
from indexmill.platform.observability import entry_point

handler = entry_point(build_api(OrchestratorApiSettings.from_environment()))
