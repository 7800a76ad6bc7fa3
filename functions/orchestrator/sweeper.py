"""Sweeper, run every minute: relays unsent messages, redispatches lost ones, deletes old rows."""

from indexmill.orchestrator.settings import OrchestratorSweeperSettings
from indexmill.orchestrator.wiring import build_sweeper
from indexmill.platform.observability import entry_point

handler = entry_point(build_sweeper(OrchestratorSweeperSettings.from_environment()))
