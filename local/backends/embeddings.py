"""Stand-in for an OpenAI-compatible embedding endpoint, with a real small model behind it.

`POST /v1/embeddings` and `GET /v1/models` as the official clients use them. `POST /control` makes it fail:
`{"mode": …, "delay": seconds, "retry_after": seconds, "times": n, "containing": text}`, where `times` is the
number of requests that are affected (absent: until the next `POST /control`), those with `containing` in
their body. `GET /control` returns counters of requests and tokens.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from dataclasses import dataclass

import numpy as np
from aiohttp import web

from local.backends.embedding_request import EmbeddingRequest, Refused, error_body, parse_request
from local.backends.model_files import MODEL_ID
from local.backends.serving import serve, stand_in_parser
from local.backends.wordllama_model import Vectors, WordLlamaModel, normalised

MODES = (
    "ok",
    "401",
    "403",
    "404",
    "429",
    "500",
    "503",
    "quota",
    "delay",
    "garbage",
    "wrong_count",
    "wrong_dim",
    "nan",
    "shuffled",
    "down",
    "hang",
    "drip",
)

_MAX_BODY_BYTES = 32 * 1024 * 1024
_FLOAT_DECIMALS = 9
_DRIP_S = 0.1
_ERRORS: dict[str, tuple[int, str, str, str]] = {
    "401": (401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    "403": (403, "You are not allowed to use this model.", "invalid_request_error", "forbidden"),
    "404": (404, "The model does not exist.", "invalid_request_error", "model_not_found"),
    "429": (429, "Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    "quota": (429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
    "500": (500, "The server had an error while processing your request.", "server_error", "server_error"),
    "503": (503, "The engine is currently overloaded.", "server_error", "overloaded"),
}


@dataclass(slots=True)
class FaultMode:
    """Fault mode of the endpoint; `times` counts down to "ok", None is unlimited."""

    mode: str = "ok"
    delay: float = 0.0
    retry_after: float | None = None
    times: int | None = None
    containing: str = ""


class EmbeddingEndpoint:
    """HTTP application around one model."""

    def __init__(self, model: WordLlamaModel, model_id: str = MODEL_ID) -> None:
        self._model = model
        self._model_id = model_id
        self._fault_mode = FaultMode()
        self._requests = self._inputs = self._tokens = 0

    def app(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/control", self._state)
        app.router.add_post("/control", self._control)
        return app

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        self._requests += 1
        raw = await request.read()
        fault = self._next_fault_mode(raw)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.mode in _ERRORS:
            return _failure(fault)
        if fault.mode == "garbage":
            return web.Response(text="<html><title>Bad gateway</title></html>", content_type="text/html")
        if fault.mode == "down" and request.transport is not None:
            request.transport.abort()
        if fault.mode in ("hang", "drip"):
            await _without_end(request, drips=fault.mode == "drip")
        try:
            return self._answer(raw, fault.mode)
        except Refused as refusal:
            return web.json_response(refusal.body, status=refusal.status)

    def _answer(self, raw: bytes, mode: str) -> web.Response:
        try:
            body = json.loads(raw)
        except ValueError as problem:
            raise Refused("We could not parse the JSON body of your request.") from problem
        request = parse_request(body, self._model, self._model_id)
        vectors = self._model.embed(request.token_ids)
        if request.dimensions < self._model.dimensions:
            vectors = normalised(vectors[:, : request.dimensions])
        self._inputs += len(request.token_ids)
        self._tokens += request.tokens
        order, vectors = _corrupted(vectors, mode)
        return web.Response(body=self._document(request, order, vectors), content_type="application/json")

    def _document(self, request: EmbeddingRequest, order: list[int], vectors: Vectors) -> bytes:
        """Return the response body.

        It is joined from strings: with base64 vectors that is far cheaper than a JSON encoder.
        """
        encode = _as_base64 if request.base64 else _as_floats
        items = ",".join(
            f'{{"object":"embedding","index":{index},"embedding":{text}}}'
            for index, text in zip(order, encode(vectors), strict=True)
        )
        usage = f'{{"prompt_tokens":{request.tokens},"total_tokens":{request.tokens}}}'
        model = json.dumps(self._model_id)
        return f'{{"object":"list","data":[{items}],"model":{model},"usage":{usage}}}'.encode()

    def _next_fault_mode(self, raw: bytes) -> FaultMode:
        fault = self._fault_mode
        if fault.containing.encode() not in raw:
            return FaultMode()
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._fault_mode = FaultMode()
        return fault

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": self._model_id, "object": "model", "created": 0, "owned_by": "indexmill"}
        return web.json_response({"object": "list", "data": [model]})

    async def _state(self, _request: web.Request) -> web.Response:
        work = {"requests": self._requests, "inputs": self._inputs, "tokens": self._tokens}
        return web.json_response({"mode": self._fault_mode.mode, "cpu_seconds": time.process_time(), **work})

    async def _control(self, request: web.Request) -> web.Response:
        try:
            fault = FaultMode(**await request.json())
        except (TypeError, ValueError):
            fault = FaultMode(mode="?")
        if fault.mode not in MODES:
            return web.json_response(
                {"detail": f"mode is one of {MODES}, with delay, retry_after, times, containing"}, status=400
            )
        self._fault_mode = fault
        return await self._state(request)


async def _without_end(request: web.Request, *, drips: bool) -> None:
    """Send nothing, or a header that never ends, until the client closes the connection."""
    part = b"HTTP/1.1 200 OK\r\nX-Drip: "
    while request.transport is not None and not request.transport.is_closing():
        if drips:
            request.transport.write(part)
            part = b"."
        await asyncio.sleep(_DRIP_S)


def _failure(fault: FaultMode) -> web.Response:
    status, message, kind, code = _ERRORS[fault.mode]
    headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
    return web.json_response(error_body(message, kind, code=code), status=status, headers=headers)


def _corrupted(vectors: Vectors, mode: str) -> tuple[list[int], Vectors]:
    """Return the items' indices and vectors in response order, with the fault of `mode` applied."""
    order = list(range(len(vectors)))
    match mode:
        case "wrong_count":
            return order[:-1], vectors[:-1]
        case "wrong_dim":
            return order, vectors[:, :-1]
        case "nan":
            return order, np.full_like(vectors, np.nan)
        case "shuffled":
            return order[::-1], vectors[::-1]
    return order, vectors


def _as_base64(vectors: Vectors) -> list[str]:
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    return [f'"{base64.b64encode(row).decode("ascii")}"' for row in rows]


def _as_floats(vectors: Vectors) -> list[str]:
    return [json.dumps(row) for row in np.round(vectors.astype(np.float64), _FLOAT_DECIMALS).tolist()]


def main() -> None:
    """Serve until SIGTERM."""
    parser = stand_in_parser("OpenAI-compatible embedding endpoint")
    parser.add_argument("--model-id", default=MODEL_ID, help="the model name that requests must give")
    options = parser.parse_args()
    # One thread limits the stand-in to one core.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    serve(EmbeddingEndpoint(WordLlamaModel.from_wheel(), options.model_id).app(), options.port)


if __name__ == "__main__":
    main()
