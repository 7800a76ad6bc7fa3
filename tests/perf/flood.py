"""A caller's requests while another one floods the API: `python -m tests.perf.flood [--seconds 20]`.

The flood is an open loop of searches by one caller of tier free, at the rate at which the front needs half a
core to refuse all of them by the web ACL. The other caller reads a job 20 times a second:

alone     no flood; the p50 and p99 of `GET /orchestrator/jobs/{job_id}`
control   the web ACL refuses the flood from its first request on
web ACL   with `Edge=waf`: requests reach the limiter until the web ACL blocks the key
functions without: the limiter refuses what the method's throttle lets through
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.perf.accounting import Accountant
from tests.perf.machine import Watch
from tests.perf.stack_under_test import REPOSITORY, stack

FREE_KEY: Final = "key-flood"
_RATE_FREE: Final = 120
_EACH_S: Final = 0.05
_TICK_S: Final = 0.01
_MOST_OPEN: Final = 500
"""Requests of the flood in flight; what would be beyond it is counted as not sent."""
_CALIBRATE: Final = 300
_HALF_A_CORE: Final = 0.5
_SHOWN_CORES: Final = 0.01
_LIMITED: Final = (f"RateFree={_RATE_FREE}", "EdgeRequestsPerAddress=2000000", "EdgeWindowSeconds=60")
WAYS: Final = {
    "control": ("Edge=waf", "EdgeRequestsPerKey=1500", *_LIMITED),
    "web ACL": ("Edge=waf", *_LIMITED),
    "functions": _LIMITED[:1],
}


@dataclass(frozen=True, slots=True)
class Seen:
    """Milliseconds of the other caller's reads, and the flood's answers by code."""

    took: Sequence[float]
    failed: int
    answers: dict[str, int]
    cores: dict[str, float]
    """Of each component of the stack; `host` has the front."""

    def figures(self) -> dict[str, Any]:
        """Return what is printed."""
        cut = statistics.quantiles(self.took, n=100)
        return {
            "reads": len(self.took),
            "reads_failed": self.failed,
            "p50_ms": round(cut[49], 2),
            "p95_ms": round(cut[94], 2),
            "p99_ms": round(cut[98], 2),
            "cores": {name: round(value, 2) for name, value in self.cores.items() if value >= _SHOWN_CORES},
            "flood": self.answers,
        }


async def flood(url: str, rate: float, seconds: float) -> Counter[str]:
    """Send `rate` searches a second whether or not earlier ones were answered; count the answers' codes."""
    answers: Counter[str] = Counter()
    limit = aiohttp.TCPConnector(limit=_MOST_OPEN)
    async with aiohttp.ClientSession(connector=limit, headers={"X-API-Key": FREE_KEY}) as http:
        open_now: set[asyncio.Task[None]] = set()

        async def one() -> None:
            body = {"query": "opening hours", "corpus_name": "flood"}
            try:
                async with http.post(f"{url}/embedding/search", json=body) as answer:
                    text = await answer.text()
                    code = json.loads(text)["error"]["code"] if answer.status >= 400 else "admitted"
                    answers[f"{answer.status} {code}"] += 1
            except aiohttp.ClientError as error:
                answers[type(error).__name__] += 1

        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            while sent < passed * rate:
                sent += 1
                if len(open_now) >= _MOST_OPEN:
                    answers["not sent"] += 1
                    continue
                task = asyncio.create_task(one())
                open_now.add(task)
                task.add_done_callback(open_now.discard)
            await asyncio.sleep(_TICK_S)
        await asyncio.gather(*open_now)
    return answers


@contextmanager
def _flooding(url: str, rate: float, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Run the flood in a process of its own: the reads are timed in this one."""
    command = [sys.executable, "-m", "tests.perf.flood", "--flood", url, str(rate), str(seconds)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        yield process


async def _reads(url: str, key: str, job_id: str, seconds: float) -> tuple[list[float], int]:
    """Read the job in an open loop; milliseconds of each read from the moment at which it was due."""
    took: list[float] = []
    failed = 0
    async with aiohttp.ClientSession(headers={"X-API-Key": key}) as http:

        async def one(due: float) -> None:
            nonlocal failed
            async with http.get(f"{url}/orchestrator/jobs/{job_id}") as answer:
                await answer.read()
                failed += answer.status != 200
            took.append((time.monotonic() - due) * 1000)

        began, tasks = time.monotonic(), []
        for number in range(int(seconds / _EACH_S)):
            due = began + number * _EACH_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(asyncio.create_task(one(due)))
        await asyncio.gather(*tasks)
    return took, failed


class Place:
    """A stack with a job that is done."""

    def __init__(self, info: dict[str, Any]) -> None:
        self._url, self._key = info["gateway"], info["api_key"]
        self._accountant = Accountant(info)
        keys = Path(info["state"]) / "membership-keys.json"
        keys.write_text(json.dumps({**json.loads(keys.read_text()), FREE_KEY: {"tier": "free"}}))
        self._job = asyncio.run(self._submitted(f"{info['site']}/index.html"))

    async def _submitted(self, page: str) -> str:
        async with aiohttp.ClientSession(headers={"X-API-Key": self._key}) as http:
            async with http.post(
                f"{self._url}/orchestrator/jobs", json={"url": page, "corpus_name": "reads"}
            ) as answer:
                accepted = await answer.json()
                if "job_id" not in accepted:
                    raise SystemExit(f"the submit was refused: {accepted}")
                job_id: str = accepted["job_id"]
            for _ in range(200):
                async with http.get(f"{self._url}/orchestrator/jobs/{job_id}") as answer:
                    if (await answer.json())["status"] == "done":
                        return job_id
                await asyncio.sleep(0.1)
        raise SystemExit("the job was not done in 20 s")

    def measured(self, rate: float, seconds: float) -> Seen:
        """Read for so long, beside a flood of `rate` requests a second."""
        before = self._accountant.snapshot()
        if rate:
            with _flooding(self._url, rate, seconds) as process:
                took, failed = asyncio.run(_reads(self._url, self._key, self._job, seconds))
                answers = json.loads(process.communicate(timeout=60)[0])
        else:
            took, failed = asyncio.run(_reads(self._url, self._key, self._job, seconds))
            answers = {}
        after = self._accountant.snapshot()
        spent = {name: after.cpu_s[name] - before.cpu_s.get(name, 0.0) for name in after.cpu_s}
        cores = {name: value / (after.at - before.at) for name, value in spent.items()}
        return Seen(took, failed, answers, cores)


def measure(seconds: float) -> dict[str, Any]:
    """Return the figures of each way, and the rate of the flood."""
    found: dict[str, Any] = {}
    rate = 0.0
    for name, parameters in WAYS.items():
        with stack(parameters) as started:
            place = Place(started.info)
            if name == "control":
                alone = place.measured(0, seconds)
                found["alone"] = alone.figures()
                # Beyond the limit of the web ACL, so that the front refuses all that follows.
                place.measured(_CALIBRATE, 6)
                refused = place.measured(_CALIBRATE, 5)
                rate = _HALF_A_CORE / (refused.cores["host"] - alone.cores["host"]) * _CALIBRATE
                found["rate"] = round(rate)
            found[name] = place.measured(rate, seconds).figures()
    return found


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each way")
    parser.add_argument("--flood", nargs=3, metavar=("URL", "RATE", "SECONDS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood:
        url, rate, seconds = given.flood
        print(json.dumps(asyncio.run(flood(url, float(rate), float(seconds)))))
        return
    watch = Watch()
    print(json.dumps(measure(given.seconds), indent=2))
    print("\n".join(watch.lines()))


if __name__ == "__main__":
    main()
