"""Ten pages at once that want all the memory there is: the worker takes little of it."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import zlib

import pytest

from tests.integration.scraper.site import Site
from tests.support.repository import ROOT

MOST_GROWTH_MB = 256
PAGES = ["/fine", *["/bomb"] * 4, *["/endless"] * 3, *["/announced"] * 2]

PROGRAM = """
import json, resource, sys, time
from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_batch
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue

port, *paths = sys.argv[1:]
url = f"http://127.0.0.1:{port}"
reports = InMemoryQueue()
settings = ScraperWorkerSettings(
    scrape_queue_url="x", scrape_dlq_url="x", callbacks_queue_url="x", bucket_name="x", state_table="x",
    allowed_private_hosts=f"127.0.0.1:{port}",
)
worker = build_batch(
    settings, queue=reports, source=InMemoryQueue(), blobs=InMemoryBlobs(), robots_cache=InMemoryRobotsCache()
)

def work(paths):
    tasks = [ScrapeTask(message_id=path, job_id=path, url=url + path) for path in paths]
    worker([Delivery(task, 1, time.monotonic() + 30) for task in tasks])

def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

work(["/fine"])
reports.bodies.clear()
before = megabytes()
work(paths)
found = [read(StageResult, body) for body in reports.bodies]
print(json.dumps({
    "grown_mb": megabytes() - before,
    "codes": sorted(each.failure.code if each.failure else "done" for each in found),
}))
worker.close()
"""


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    noise = random.Random(1).randbytes(65_536)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + noise + b"\r\n")
        await writer.drain()


@pytest.mark.fault("F68")
def test_pages_that_want_all_memory_get_little_of_it(site: Site) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    # 320 MB of nothing, in 320 kB.
    bomb = b"".join(packer.compress(bytes(8 << 20)) for _ in range(40)) + packer.flush()
    site.page("/bomb", bomb, content_encoding="gzip")
    site.route("/endless", endless)
    site.route(
        "/announced", b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9000000000\r\n\r\n"
    )
    site.page("/fine", "<!doctype html><title>T</title><p>Some words.</p>")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(site.port), *PAGES],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["codes"] == sorted(
        ["done", *["content_bomb"] * 4, *["content_too_large"] * 5],
    )
    assert found["grown_mb"] < MOST_GROWTH_MB, found
