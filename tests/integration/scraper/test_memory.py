"""Ten pages at once that want all the memory there is: the worker takes little of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from indexmill.contracts.given import MAX_UPLOAD_BYTES
from indexmill.scraper.settings import ScraperWorkerSettings
from local.compute.process_stats import group_memory_mb, process_groups
from tests.integration.scraper.site import Site
from tests.support.function_env import template
from tests.support.repository import ROOT
from tests.unit.scraper.pdf_file import pdf

MOST_GROWTH_MB = 256
PAGES = ["/fine", *["/bomb"] * 4, *["/endless"] * 3, *["/announced"] * 2]

PROGRAM = """
import json, pathlib, resource, sys, time
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

port, *paths = sys.argv[1:]
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
        timeout=150,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["codes"] == sorted(
        ["done", *["content_bomb"] * 4, *["content_too_large"] * 5],
    )
    assert found["grown_mb"] < MOST_GROWTH_MB, found


@pytest.mark.fault("F68")
@pytest.mark.shows("B59")
def test_the_largest_pages_and_their_children_fit_the_function(site: Site) -> None:
    """Ten pages of the largest size together, each of which takes up to fifteen times its bytes."""
    memory = template()["Resources"]["ScraperWorker"]["Properties"]["MemorySize"]
    largest = ScraperWorkerSettings.model_fields["max_content_bytes"].default
    wide = "word \U0001f600 text "
    page = "<!doctype html><title>T</title><p>" + wide * ((largest - 100) // len(wide.encode()))
    site.page("/wide", page)
    site.page("/tags", "<!doctype html><main>" + "<p>Wort <b>fett</b></p>" * 330_000)
    site.page("/pdf", pdf(*["Some words"] * 2_000), content_type="application/pdf")
    codes, peak, most = peak_of(site, [*["/wide"] * 7, "/tags", "/tags", "/pdf"], memory)
    assert (codes, most) == (["done"] * 10, 2)
    assert peak < memory, peak


@pytest.mark.shows("B59")
def test_the_largest_uploads_and_pages_fit_the_function(site: Site, tmp_path: Path) -> None:
    """One upload is in memory at a time, beside nine pages of the largest size."""
    memory = template()["Resources"]["ScraperWorker"]["Properties"]["MemorySize"]
    largest = ScraperWorkerSettings.model_fields["max_content_bytes"].default
    wide = "word \U0001f600 text "
    page = "<!doctype html><title>T</title><p>" + wide * ((largest - 100) // len(wide.encode()))
    site.page("/wide", page)
    upload, text = tmp_path / "upload.pdf", tmp_path / "upload.txt"
    picture = random.Random(1).randbytes(MAX_UPLOAD_BYTES - 1_000_000)
    upload.write_bytes(pdf(*["Some words"] * 1_000, beside=picture))
    text.write_bytes(b"word " * (MAX_UPLOAD_BYTES // 5))
    codes, peak, most = peak_of(site, [*["/wide"] * 5, *[f"@{upload}"] * 3, *[f"@{text}"] * 2], memory)
    assert (codes, most) == (["content_too_large"] * 2 + ["done"] * 8, 2)
    assert peak < memory, peak


def peak_of(site: Site, paths: list[str], memory: int) -> tuple[list[str], float, int]:
    """Let a worker of a function with `memory` MiB work; return codes, most MiB and most processes."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(site.port), *paths],
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
        found = json.loads(running.stdout.read().splitlines()[-1])
    return found["codes"], peak, most
