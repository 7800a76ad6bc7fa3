"""Event stream of one job, apart from the other endpoints because its requests wait."""

from indexmill.orchestrator.settings import OrchestratorStreamSettings
from indexmill.orchestrator.wiring import build_stream
from indexmill.platform.observability import entry_point

handler = entry_point(build_stream(OrchestratorStreamSettings.from_environment()))
