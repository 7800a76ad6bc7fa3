"""An embeddings endpoint that answers as a test tells it to, well or badly."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from indexmill.contracts.errors import IndexmillError
from indexmill.embedding.adapters.openai_embedder import OpenAIEmbedder
from indexmill.embedding.ports import Space
from indexmill.platform.aws.secrets import Secret

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def vector(number: float) -> list[float]:
    return [number, 0.5, -2.0, 1.25]


def packed(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def item(index: Any, embedding: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": embedding}


def document(*items: Any) -> web.Response:
    # Not json_response's own encoder: NaN must get out as NaN.
    return web.Response(text=json.dumps({"object": "list", "data": items}), content_type="application/json")


class Endpoint:
    """Gives the configured answer, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answer: Answer = good
        self.address = ""
        self.app = web.Application(client_max_size=10**8)
        self.app.router.add_post("/{before:.*}v1/embeddings", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("Authorization"))
        return await self.answer(request, body)

    def always(self, response: Callable[[], web.Response]) -> None:
        async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
            return response()

        self.answer = answer

    def embedder(self, **changes: Any) -> OpenAIEmbedder:
        given = {"base_url": f"{self.address}/v1", "api_key": Secret("secret"), **changes}
        return OpenAIEmbedder(Space("m", 4), **given)

    def error(self, texts: int = 2, timeout_s: float = 5, **changes: Any) -> IndexmillError:
        with pytest.raises(IndexmillError) as caught:
            self.embedder(**changes).embed([f"t{at}" for at in range(texts)], timeout_s=timeout_s)
        return caught.value


async def good(request: web.Request, body: dict[str, Any]) -> web.Response:
    return document(*(item(at, packed(vector(at))) for at in range(len(body["input"]))))
