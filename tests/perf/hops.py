"""Benchmark of a queue between two functions: latency of a hop, idle and busy, and CPU while waiting.

    python -m tests.perf.hops

A hop is timed from before the message is sent until its function has returned. Idle: one message after a
quiet moment. Busy: messages at a steady rate. Then nothing is sent for a while, and the CPU is counted that
waiting costs, with six queues: `host` is the process of the triggers and the Lambda host, `queues` MiniStack.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import boto3

from local.backends.ministack import MiniStack
from local.compute.host import LambdaHost
from local.compute.process_stats import cpu_seconds
from local.template.spec import FunctionSpec, InvokeResult, SqsSourceSpec
from local.triggers.sqs import SqsEventSource

_REGION: Final = "eu-west-1"
_ACCOUNT: Final = "000000000000"
_PYTHON: Final = Path(__file__).resolve().parents[2] / ".venv-ministack" / "bin" / "python"
_HANDLER: Final = "import time\n\ndef handler(event, context):\n    open('/dev/null')\n"
_QUEUES: Final = 6


class Arrivals:
    """An invoker before the real one: notes when each message has been through its function."""

    def __init__(self, host: LambdaHost) -> None:
        self._host = host
        self.hops: list[float] = []
        self.changed = asyncio.Event()

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        """Run the function; the body of each message is the time at which it was sent."""
        result = await self._host.invoke(function, payload)
        now = time.monotonic()
        self.hops += [(now - float(record["body"])) * 1000 for record in json.loads(payload)["Records"]]
        self.changed.set()
        return result


async def measure(idle_s: float) -> dict[str, Any]:
    """Hops in milliseconds, and CPU while idle in percent of one core."""
    with tempfile.TemporaryDirectory(prefix="indexmill-hops-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code" / "app.py").write_text(_HANDLER)
        spec = FunctionSpec("Fn", "fn", "app.handler", folder / "code", (), 5, 128, {})
        host = LambdaHost([spec], region=_REGION, log_dir=folder / "logs", account_id=_ACCOUNT)
        aws = MiniStack(folder / "aws", _PYTHON, account_id=_ACCOUNT, region=_REGION)
        sources: list[SqsEventSource] = []
        try:
            await host.start()
            sqs = _client(await aws.start())
            arrivals = Arrivals(host)
            sources = [_source(sqs, aws.endpoint, number, arrivals) for number in range(_QUEUES)]
            for source in sources:
                await source.start()
            url = sqs.get_queue_url(QueueName="q0")["QueueUrl"]
            await _send(sqs, url, arrivals, 5, 0.05)
            found = {
                "hop_idle": _summary(await _send(sqs, url, arrivals, 40, 0.15)),
                "hop_busy": _summary(await _send(sqs, url, arrivals, 300, 0.01)),
            }
            return found | {"idle_cpu_percent": await _idle(aws.pid or 0, idle_s)}
        finally:
            await asyncio.gather(*(source.stop() for source in sources))
            await host.stop()
            await aws.stop()


def _client(endpoint: str) -> Any:
    session: Any = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=_REGION)
    return session.client("sqs", endpoint_url=endpoint)


def _source(sqs: Any, endpoint: str, number: int, invoker: Arrivals) -> SqsEventSource:
    url = sqs.create_queue(QueueName=f"q{number}", Attributes={"VisibilityTimeout": "30"})["QueueUrl"]
    return SqsEventSource(
        SqsSourceSpec(f"Mapping{number}", "fn", f"q{number}"),
        url,
        f"arn:aws:sqs:{_REGION}:{_ACCOUNT}:q{number}",
        invoker,
        endpoint,
        region=_REGION,
        function_timeout_s=5.0,
        prompt_long_polls=True,
    )


async def _send(sqs: Any, url: str, arrivals: Arrivals, count: int, every_s: float) -> list[float]:
    """Send `count` messages `every_s` apart; returns their hops once all have arrived."""
    arrivals.hops = []
    for _ in range(count):
        began = time.monotonic()
        await asyncio.to_thread(sqs.send_message, QueueUrl=url, MessageBody=repr(began))
        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began)))
    while len(arrivals.hops) < count:
        arrivals.changed.clear()
        async with asyncio.timeout(10):
            await arrivals.changed.wait()
    return arrivals.hops


async def _idle(pid: int, seconds: float) -> dict[str, float]:
    """CPU of this process and of `pid` while nothing is sent, in percent of one core."""
    await asyncio.sleep(3)
    before = time.process_time(), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    after = time.process_time(), cpu_seconds(pid)
    shares = [100 * (late - early) / seconds for early, late in zip(before, after, strict=True)]
    return {"host": round(shares[0], 2), "queues": round(shares[1], 2)}


def _summary(hops: list[float]) -> dict[str, float]:
    ordered = sorted(hops)
    p95 = ordered[round(0.95 * len(ordered)) - 1]
    return {"p50_ms": round(statistics.median(ordered), 1), "p95_ms": round(p95, 1), "count": len(ordered)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    print(json.dumps(asyncio.run(measure(parser.parse_args().idle_seconds)), indent=2))


if __name__ == "__main__":
    main()
