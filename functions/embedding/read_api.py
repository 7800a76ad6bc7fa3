"""Search."""

from __future__ import annotations

from indexmill.embedding.routes_read import routes
from indexmill.embedding.settings import EmbeddingReadApiSettings
from indexmill.embedding.wiring import build_read_api
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.time.deadline import request_limit

_LIMIT_S = 60.0
_settings = EmbeddingReadApiSettings.from_environment()
_observability = Observability("embedding", level=_settings.log_level)
_limit_s = request_limit(_LIMIT_S, _settings.integration_timeout_seconds)
app = create_app(
    "Indexmill Search", [routes(build_read_api(_settings), _observability, _limit_s)], _observability
)
handler = lambda_handler(app, _observability)
