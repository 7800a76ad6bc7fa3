"""Write stack/openapi.yaml from the routes, or say that it is stale: `python tools/openapi.py [--check]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from fastapi import APIRouter, FastAPI

from indexmill.chunking.api import routes as chunking_routes
from indexmill.contracts.errors import ErrorCode
from indexmill.embedding.api import read_routes, write_routes
from indexmill.orchestrator.http.api import action_routes
from indexmill.orchestrator.http.api import routes as orchestrator_routes
from indexmill.orchestrator.http.stream import routes as stream_routes
from indexmill.scraper.api import routes as scraper_routes

TARGET = Path(__file__).resolve().parents[1] / "stack" / "openapi.yaml"
_ANY_STATUS = ("400", "401", "413", "415", "422", "503")
_MORE_STATUS = {
    "/orchestrator/jobs": ("409",),
    "/orchestrator/jobs/{job_id}": ("404",),
    "/orchestrator/jobs/{job_id}/history": ("404",),
    "/orchestrator/jobs/{job_id}/stream": ("404",),
    "/orchestrator/jobs/{job_id}/stream-token": ("404",),
    "/orchestrator/jobs/{job_id}/cancel": ("404", "409"),
    "/orchestrator/jobs/{job_id}/retry": ("404", "409"),
    "/orchestrator/jobs/{job_id}/replay": ("404", "409"),
    "/orchestrator/jobs/{job_id}/diff": ("404", "409"),
    "/orchestrator/batches/{batch_id}": ("404",),
    "/orchestrator/jobs/{job_id}/complete": ("403", "404", "409"),
    "/scraper/scrape": ("403", "502", "504"),
    "/scraper/enqueue": ("403",),
    "/chunking/chunk": ("504",),
    "/chunking/enqueue": ("403",),
    "/embedding/embed": ("502", "504"),
    "/embedding/enqueue": ("403",),
    "/embedding/search": ("404", "504"),
}


def routers() -> Iterator[APIRouter]:
    """Yield every service's router; the use cases behind them are not needed to read their shapes."""
    nothing: Any = SimpleNamespace()
    yield orchestrator_routes(nothing)
    yield stream_routes(nothing)
    yield action_routes(nothing)
    yield scraper_routes(nothing, 1)
    yield chunking_routes(nothing, 29)
    yield write_routes(nothing, 1)
    yield read_routes(nothing, nothing, 1)


def document() -> dict[str, Any]:
    """Return the OpenAPI document of the whole API."""
    app = FastAPI(
        title="Indexmill",
        version="0.1.0",
        description="Turns URLs and documents into a searchable corpus. Errors share one shape.",
    )
    for router in routers():
        app.include_router(router)
    found = app.openapi()
    components = found["components"]
    components["schemas"] = {
        name: schema
        for name, schema in components["schemas"].items()
        if name not in ("HTTPValidationError", "ValidationError")
    }
    components["schemas"]["ErrorEnvelope"] = _envelope()
    components["securitySchemes"] = {
        "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "StreamToken": {"type": "apiKey", "in": "query", "name": "token"},
    }
    found["security"] = [{"ApiKey": []}]
    for path, methods in found["paths"].items():
        for operation in methods.values():
            _with_errors(path, operation)
    return found


def _with_errors(path: str, operation: dict[str, Any]) -> None:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
    responses = operation["responses"]
    for status in sorted({*_ANY_STATUS, *_MORE_STATUS.get(path, ())}):
        responses[status] = {"description": "Error", "content": error}


def _envelope() -> dict[str, Any]:
    text = {"type": "string"}
    properties = {
        "code": {**text, "description": f"One of: {', '.join(ErrorCode)}, or http_<status>."},
        "message": text,
        "request_id": text,
        "field": text,
        "retry_after": {"type": "integer"},
        "hint": text,
    }
    inner = {"type": "object", "required": ["code", "message", "request_id"], "properties": properties}
    return {"type": "object", "required": ["error"], "properties": {"error": inner}}


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts out instead of pointing at them."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Never use an alias."""
        return True


def rendered() -> str:
    """Return the file's text."""
    return str(yaml.dump(document(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def main() -> int:
    """Write the file; with --check only compare, and return 1 when it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    text = rendered()
    if parser.parse_args().check:
        if TARGET.is_file() and TARGET.read_text() == text:
            return 0
        sys.stderr.write("stack/openapi.yaml is stale: run `make generate`\n")
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
