"""One job's live stream, apart from the other endpoints because its requests wait."""

from __future__ import annotations

from indexmill.orchestrator.routes_stream import routes
from indexmill.orchestrator.settings import OrchestratorStreamSettings
from indexmill.orchestrator.wiring_stream import build_stream
from indexmill.platform.http.app import create_app, lambda_handler

_stream = build_stream(OrchestratorStreamSettings.from_environment())
app = create_app("Indexmill job stream", [routes(_stream)], _stream.observability)
handler = lambda_handler(app, _stream.observability)
