"""An OpenAI-compatible endpoint that answers any vectors after a fixed time.

With a real model behind the stack, the model is most of what a job costs on a small machine. The peers are
measured against 384 dimensions after 5 ms, and so is this stack. `python -m tests.perf.embedding_stub [MS]`
takes MS milliseconds more for each input. It prints its port as JSON and ends when standard input
closes; GET /control says how many texts it embedded.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import struct
import sys
from typing import Final

from aiohttp import web

DIMENSIONS: Final = 384
DELAY_S: Final = 0.005
_POOL: Final = 512


class Stub:
    """Vectors from a fixed pool."""

    def __init__(self, per_input_s: float = 0.0) -> None:
        self._texts = 0
        self._per_input_s = per_input_s
        chance = random.Random(7)
        self._encoded, self._listed = [], []
        for _ in range(_POOL):
            vector = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
            norm = sum(value * value for value in vector) ** 0.5
            unit = [value / norm for value in vector]
            packed = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *unit)).decode()
            self._encoded.append(f'"{packed}"')
            self._listed.append("[" + ",".join(f"{value:.6f}" for value in unit) + "]")

    async def answer(self, request: web.Request) -> web.Response:
        """POST /v1/embeddings."""
        body = await request.json()
        inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self._texts += len(inputs)
        pool = self._encoded if body.get("encoding_format") == "base64" else self._listed
        first = hash(inputs[0]) if inputs else 0
        data = ",".join(
            f'{{"object":"embedding","index":{i},"embedding":{pool[(first + i) % _POOL]}}}'
            for i in range(len(inputs))
        )
        await asyncio.sleep(DELAY_S + self._per_input_s * len(inputs))
        usage = '"usage":{"prompt_tokens":1,"total_tokens":1}'
        text = f'{{"object":"list","model":"stub","data":[{data}],{usage}}}'
        return web.Response(text=text, content_type="application/json")

    async def state(self, _request: web.Request) -> web.Response:
        """GET /control."""
        return web.json_response({"texts": self._texts})


async def main(per_input_s: float) -> None:
    """Serve until standard input closes."""
    app = web.Application(client_max_size=64 << 20)
    stub = Stub(per_input_s)
    app.router.add_post("/v1/embeddings", stub.answer)
    app.router.add_get("/control", stub.state)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(float(sys.argv[1]) / 1e3 if len(sys.argv) > 1 else 0.0))
