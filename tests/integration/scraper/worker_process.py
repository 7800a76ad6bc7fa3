"""A scrape worker in a process of its own, with everything real but AWS, and the memory that it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from local.compute.process_stats import group_memory_mb, process_groups
from tests.integration.scraper.site import Site
from tests.support.repository import ROOT

PROGRAM = """
import json, pathlib, sys, time
from indexmill.contracts.content import BlobRef
from indexmill.contracts.messages import ScrapeTask, StageResult, Stored, read
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_batch
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue

class Forgetful(InMemoryBlobs):
    def put_at(self, key, data, *, content_type):
        self.puts.append(key)

class OnDisk(Forgetful):
    # Into memory, as an object is read from S3.
    def get(self, ref):
        return pathlib.Path(ref.key).read_bytes()

port, *batches = sys.argv[1:]
url = f"http://127.0.0.1:{port}"
reports = InMemoryQueue()
settings = ScraperWorkerSettings(
    scrape_queue_url="x", scrape_dlq_url="x", callbacks_queue_url="x", bucket_name="x", state_table="x",
    allowed_private_hosts=f"127.0.0.1:{port}", scrape_timeout_s=120, domain_rates="*=unlimited",
)
worker = build_batch(
    settings, queue=reports, source=InMemoryQueue(), blobs=OnDisk(), robots_cache=InMemoryRobotsCache()
)

def task(path):
    if not path.startswith("@"):
        return ScrapeTask(message_id=path, job_id=path, url=url + path)
    ref = BlobRef(key=path[1:], size=pathlib.Path(path[1:]).stat().st_size, sha256="0" * 64)
    stored = Stored(ref=ref, content_type="", final_url="upload:" + path[1:])
    return ScrapeTask(message_id=path, job_id=path, url="upload:a", stored=stored)

def work(paths):
    tasks = [task(path) for path in paths]
    worker([Delivery(task, 1, time.monotonic() + 150) for task in tasks])

def peak_mb():
    # Of this program alone: the peak of getrusage begins with that of the process that started it.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024

def forget_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")

work(["/fine"])
forget_peak()
before = peak_mb()
found = []
for batch in batches:
    reports.bodies.clear()
    forget_peak()
    work(batch.split(","))
    results = [read(StageResult, body) for body in reports.bodies]
    codes = sorted(each.failure.code if each.failure else "done" for each in results)
    found.append({"grown_mb": peak_mb() - before, "codes": codes})
print(json.dumps(found))
worker.close()
"""
"""Arguments: the site's port, and batches of paths that commas separate; "@" begins the path of a file."""


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    noise = random.Random(1).randbytes(65_536)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + noise + b"\r\n")
        await writer.drain()


def grown(
    site: Site, batches: Sequence[Sequence[str]], *, timeout_s: float = 150, **environment: str
) -> list[dict[str, Any]]:
    """Let a worker work on the batches in turn; return codes and growth in MiB at the peak of each."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(site.port), *(",".join(batch) for batch in batches)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def peak_of(site: Site, paths: list[str], memory: int) -> tuple[list[str], float, int]:
    """Let a worker of a function with `memory` MiB work; return codes, most MiB and most processes."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(site.port), ",".join(paths)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(memory)},
        start_new_session=True,
    ) as running:
        peak, most = 0.0, 0
        ends = None
        while ends is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ends = running.wait(0.01)
            pids = process_groups().get(running.pid, [])
            peak, most = max(peak, group_memory_mb(pids)), max(most, len(pids))
        assert running.stdout is not None
        (found,) = json.loads(running.stdout.read().splitlines()[-1])
    return found["codes"], peak, most
