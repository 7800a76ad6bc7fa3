"""Embedding's write endpoints."""

from __future__ import annotations

from indexmill.embedding.routes_write import routes
from indexmill.embedding.settings import EmbeddingWriteApiSettings
from indexmill.embedding.wiring import build_write_api
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.time.deadline import request_limit

_LIMIT_S = 60.0
_settings = EmbeddingWriteApiSettings.from_environment()
_observability = Observability("embedding", level=_settings.log_level)
_limit_s = request_limit(_LIMIT_S, _settings.integration_timeout_seconds)
app = create_app("Indexmill Embedding", [routes(build_write_api(_settings), _limit_s)], _observability)
handler = lambda_handler(app, _observability)
