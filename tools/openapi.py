"""Write stack/openapi.yaml from the routes, or say that it is stale: `python tools/openapi.py [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from fastapi import APIRouter, FastAPI

from indexmill.chunking.api import routes as chunking_routes
from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.pages import MAX_LIMIT
from indexmill.embedding.api import (
    corpora_routes,
    corpus_action_routes,
    document_routes,
    read_routes,
    write_routes,
)
from indexmill.orchestrator.http.api import action_routes, open_routes
from indexmill.orchestrator.http.api import routes as orchestrator_routes
from indexmill.orchestrator.http.stream import routes as stream_routes
from indexmill.scraper.api import routes as scraper_routes
from indexmill.version import VERSION

TARGET = Path(__file__).resolve().parents[1] / "stack" / "openapi.yaml"
_EXAMPLES = Path(__file__).with_name("openapi_examples.yaml")
_ANY_STATUS = ("400", "401", "403", "413", "415", "422", "429", "500", "503", "504")
"""Of every operation; 500 is a defect."""
_WITH_WAIT = ("429", "503", "504")
_OPEN = "/orchestrator/health"
"""The only path without a key, and so without a caller's limits."""
_MORE_STATUS = {
    "/orchestrator/jobs": ("404", "409"),
    "/orchestrator/jobs/{job_id}": ("404",),
    "/orchestrator/jobs/{job_id}/history": ("404",),
    "/orchestrator/jobs/{job_id}/report": ("404",),
    "/orchestrator/jobs/{job_id}/stream": ("404",),
    "/orchestrator/jobs/{job_id}/stream-token": ("404",),
    "/orchestrator/jobs/{job_id}/cancel": ("404", "409"),
    "/orchestrator/jobs/{job_id}/retry": ("404", "409"),
    "/orchestrator/jobs/{job_id}/replay": ("404", "409"),
    "/orchestrator/jobs/{job_id}/diff": ("404", "409"),
    "/orchestrator/batches/{batch_id}": ("404",),
    "/orchestrator/batches/{batch_id}/cancel": ("404",),
    "/orchestrator/jobs/{job_id}/complete": ("404", "409"),
    "/scraper/scrape": ("502",),
    "/embedding/embed": ("502",),
    "/embedding/enqueue": ("404", "409"),
    "/embedding/search": ("404",),
    "/embedding/corpora/{name}": ("404",),
    "/embedding/corpora/{name}/documents": ("404",),
    "/embedding/corpora/{name}/documents/{document_id}": ("404",),
    "/embedding/corpora/{name}/documents/{document_id}/chunks": ("404", "409"),
    "/embedding/corpora/{name}/rename": ("404", "409"),
    "/embedding/corpora/{name}/documents/{document_id}/content": ("404", "410"),
    "/embedding/corpora/{name}/verify": ("404",),
    "/embedding/corpora/{name}/grants": ("404",),
    "/embedding/corpora/{name}/share": ("404", "409"),
    "/embedding/corpora/{name}/unshare": ("404",),
}


def routers() -> Iterator[APIRouter]:
    """Yield every service's router; the use cases behind them are not needed to read their shapes."""
    nothing: Any = SimpleNamespace()
    yield orchestrator_routes(nothing)
    yield stream_routes(nothing)
    yield action_routes(nothing)
    yield open_routes(nothing)
    yield scraper_routes(nothing, 1)
    yield chunking_routes(nothing, 29)
    yield write_routes(nothing, 1)
    yield read_routes(nothing, nothing, 1)
    yield corpora_routes(nothing, nothing)
    yield document_routes(nothing, nothing)
    yield corpus_action_routes(nothing)


def document() -> dict[str, Any]:
    """Return the OpenAPI document of the whole API."""
    app = FastAPI(
        title="Indexmill",
        version=VERSION,
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
            for each in operation.get("parameters", ()):
                if each["in"] == "path" and each["name"] in ("job_id", "batch_id"):
                    each["schema"]["format"] = "uuid"
                if each["name"] == "limit":
                    each["schema"] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50}
    _add_examples(found)
    return found


def _add_examples(found: dict[str, Any]) -> None:
    """Put in the examples: of requests, 2xx answers, parameters in paths and the error envelope."""
    examples = yaml.safe_load(_EXAMPLES.read_text(encoding="utf-8"))
    found["components"]["schemas"]["ErrorEnvelope"]["examples"] = [examples["error"]]
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            own = examples["operations"].pop(f"{method.upper()} {path}", {})
            if "request" in own:
                operation["requestBody"]["content"]["application/json"]["example"] = own.pop("request")
            for status, value in own.items():
                ((media_type, content),) = operation["responses"][status]["content"].items()
                content["example"] = _events(value) if media_type == "text/event-stream" else value
            for each in operation.get("parameters", ()):
                if each["in"] == "path":
                    each["example"] = examples["parameters"][each["name"]]
    if examples["operations"]:
        raise ValueError(f"{_EXAMPLES.name} names operations that are not there: {[*examples['operations']]}")


def _events(job: dict[str, Any]) -> str:
    return f"retry: 200\nid: 4812.1773484923017.0\ndata: {json.dumps(job)}\n\n"


def _with_errors(path: str, operation: dict[str, Any]) -> None:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
    responses = operation["responses"]
    for status in sorted({*_ANY_STATUS, *_MORE_STATUS.get(path, ())}):
        responses[status] = {"description": _DESCRIPTIONS[status], "content": error}
    for status, response in responses.items():
        if stream := response.get("content", {}).get("text/event-stream"):
            # FastAPI describes one string: readers of the document take the schema for that of an event.
            del stream["schema"]["type"]
        response["headers"] = {**response.get("headers", {}), "X-Request-Id": _REQUEST_ID}
        if status in _WITH_WAIT:
            response["headers"]["Retry-After"] = _RETRY_AFTER
        if (status.startswith("2") or status == "429") and path != _OPEN:
            response["headers"] |= _LIMIT_HEADERS


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


_DESCRIPTIONS = {
    "400": "The request cannot be read.",
    "401": "The key is missing or invalid.",
    "403": "The key may not do that, or its caller is blocked.",
    "404": "There is no such object of the caller's.",
    "409": "The object's state does not allow it.",
    "410": "What was asked for is not kept.",
    "413": "The request or the answer is too large.",
    "415": "The body is not application/json.",
    "422": "A value is wrong; `field` names it.",
    "429": "Too many requests, or a quota is used up.",
    "500": "A defect of the service.",
    "502": "Another party failed.",
    "503": "Something the request needs is unavailable.",
    "504": "The request took too long.",
}
_REQUEST_ID = {
    "description": "Id of the request: the caller's own when it is a sound one.",
    "required": True,
    "schema": {"type": "string"},
}
_RETRY_AFTER = {
    "description": "Seconds after which another try makes sense.",
    "required": True,
    "schema": {"type": "integer", "minimum": 0},
}
_LIMIT_HEADERS: dict[str, Any] = {
    name: {"description": text, "schema": {"type": kind}}
    for name, text, kind in (
        (
            "X-RateLimit-Limit",
            "Requests that the caller may send in a window; missing without a limit.",
            "integer",
        ),
        ("X-RateLimit-Remaining", "How many of them are left.", "integer"),
        ("X-RateLimit-Reset", "Seconds until more are left.", "integer"),
        ("X-RateLimit-Reason", "Which limit it is.", "string"),
    )
}


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
