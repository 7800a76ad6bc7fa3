"""Benchmark of reload: time until changed code of a function or of the shared layer is served.

    python -m tests.perf.reload --edits 20

Each edit is timed from the moment that the file is written until an invocation answers with the new code.
Calls follow each other closely, as when a developer saves a file and tries again at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from local.compute.host import LambdaHost
from local.template.spec import FunctionSpec

_LAYER: Final = Path(__file__).resolve().parents[2] / "layers" / "indexmill"
_EDITED: Final = "indexmill/platform/edited.py"
# What a function of ours loads: settings, HTTP and the service's use cases.
_HANDLER: Final = """
import indexmill.chunking.api
import indexmill.platform.http.app
import indexmill.platform.edited
import own

def handler(event, context):
    return [own.VERSION, indexmill.platform.edited.VERSION]
"""


async def measure(edits: int) -> dict[str, dict[str, float]]:
    """Milliseconds from an edit to its effect, for both kinds of code."""
    with tempfile.TemporaryDirectory(prefix="indexmill-reload-") as name:
        folder = Path(name)
        shutil.copytree(_LAYER, folder / "layer", ignore=shutil.ignore_patterns("__pycache__"))
        edited = {"function": folder / "code" / "own.py", "layer": folder / "layer" / "python" / _EDITED}
        (folder / "code").mkdir()
        (folder / "code" / "app.py").write_text(_HANDLER)
        for file in edited.values():
            file.write_text("VERSION = 0\n")
        spec = FunctionSpec("Fn", "fn", "app.handler", folder / "code", (folder / "layer",), 30, 512, {})
        host = LambdaHost([spec], region="eu-west-1", log_dir=folder / "logs")
        await host.start()
        try:
            return {kind: _summary(await _edits(host, kind, edited[kind], edits)) for kind in edited}
        finally:
            await host.stop()


async def _edits(host: LambdaHost, kind: str, file: Path, count: int) -> list[float]:
    at = ("function", "layer").index(kind)

    async def served() -> int:
        result = await host.invoke("fn", b"{}")
        if result.function_error is not None:
            raise SystemExit(result.payload.decode())
        return int(json.loads(result.payload)[at])

    await served()
    return [await _one(file, number + 1, served) for number in range(count)]


async def _one(file: Path, number: int, served: Callable[[], Awaitable[int]]) -> float:
    file.write_text(f"VERSION = {number}\n")
    began = time.monotonic()
    while await served() != number:
        await asyncio.sleep(0.002)
    return (time.monotonic() - began) * 1000


def _summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)) - 1)]
    return {"p50_ms": round(statistics.median(ordered)), "p95_ms": round(p95), "max_ms": round(ordered[-1])}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, default=20)
    print(json.dumps(asyncio.run(measure(parser.parse_args().edits)), indent=2))


if __name__ == "__main__":
    main()
