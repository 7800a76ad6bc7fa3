"""Consumer of every dead-letter queue: stores the dead letters and fails their jobs."""

from indexmill.orchestrator.settings import OrchestratorDeadLettersSettings
from indexmill.orchestrator.wiring import build_dead_letters
from indexmill.platform.observability import entry_point

handler = entry_point(build_dead_letters(OrchestratorDeadLettersSettings.from_environment()))
