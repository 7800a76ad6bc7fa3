"""Chunking: a REST endpoint, and the Orchestrator's direct invoke."""

from __future__ import annotations

from typing import Any

from indexmill.chunking.routes import routes
from indexmill.chunking.settings import ChunkingApiSettings
from indexmill.chunking.wiring import build_api
from indexmill.contracts.messages import ChunkCall
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability

_settings = ChunkingApiSettings.from_environment()
_observability = Observability("chunking", level=_settings.log_level)
_chunk = build_api(_settings)
app = create_app(
    "Indexmill Chunking", [routes(_chunk, _settings.integration_timeout_seconds)], _observability
)
_rest = lambda_handler(app, _observability)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a REST event, or the ChunkCall of a direct invoke."""
    if "httpMethod" in event:
        return _rest(event, context)
    return _chunk.call(ChunkCall.model_validate(event)).model_dump(exclude_none=True)
