"""The Orchestrator's REST endpoints."""

from __future__ import annotations

from indexmill.orchestrator.routes import routes
from indexmill.orchestrator.routes_verbs import routes as verb_routes
from indexmill.orchestrator.settings import OrchestratorApiSettings
from indexmill.orchestrator.wiring import build_api
from indexmill.platform.http.app import create_app, lambda_handler

_api = build_api(OrchestratorApiSettings.from_environment())
app = create_app("Indexmill Orchestrator", [routes(_api), verb_routes(_api)], _api.observability)
handler = lambda_handler(app, _api.observability)
