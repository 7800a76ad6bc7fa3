"""Receipts on a real stack: their sums are what the emulator and the Lambda host counted."""

from __future__ import annotations

import json
import random
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

from indexmill.client import Client
from indexmill.contracts.cost import Receipt
from local.logbook.records import LogFolder
from tests.support.stack import RunningStack, drained, index, indexmill, open_folder, running_stack

pytestmark = pytest.mark.e2e

JOBS, TOGETHER, ALONE, CORPUS = 200, 80, 20, "receipts"
WORDS = ("paper", "binding", "glue", "thread", "board", "cloth", "press", "knife", "spine", "leather", "ink")
HOUSEKEEPING = {"sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
TOLERANCE = 0.02
WORKERS = {"scraping": "ScraperWorker", "chunking": "ChunkingWorker", "embedding": "EmbeddingWorker"}
REPORT = re.compile(r"\tBilled Duration: (?P<ms>\d+) ms\tMemory Size: (?P<mb>\d+) MB\t")


def write_pages(folder: Path) -> None:
    """Write pages of a few paragraphs; every twentieth is too long for a message."""
    rng = random.Random(7)
    for number in range(JOBS):
        paragraphs = 240 if number % 20 == 0 else rng.randint(3, 12)
        texts = (" ".join(rng.choices(WORDS, k=60)) for _ in range(paragraphs))
        body = "".join(f"<p>{text.capitalize()}.</p>" for text in texts)
        head = f"<html><head><title>Page {number}</title></head>"
        (folder / f"{number}.html").write_text(f"{head}<body><h1>Page {number}</h1>{body}</body></html>")


@pytest.fixture(scope="module")
def own() -> Iterator[RunningStack]:
    """Yield a stack that does nothing but this file's jobs: its sweeper does not run."""
    with open_folder() as folder:
        write_pages(folder)
        with running_stack(site_root=folder) as stack:
            stack.disturb("OrchestratorSweeperEveryMinute", mode="missed", times=1000)
            yield stack


@pytest.fixture(scope="module")
def client(own: RunningStack) -> Iterator[Client]:
    """Yield the first caller's client."""
    with own.client() as opened:
        yield opened


def counted(stack: RunningStack) -> dict[str, int]:
    """Return the emulator's requests so far that are a job's, by the receipt's field."""
    found: dict[str, dict[str, int]] = httpx.get(f"{stack.aws_endpoint}/_local/requests").json()
    sums = dict.fromkeys(("sqs_requests", "s3_reads", "s3_writes", "dynamodb_requests"), 0)
    for operation, count in found.items():
        service, _, name = operation.partition(":")
        if service == "sqs" and operation not in HOUSEKEEPING:
            # Only of receives: the poller's own, which found nothing.
            sums["sqs_requests"] += count["requests"] - (count["empty"] if name == "ReceiveMessage" else 0)
        elif service == "s3":
            sums["s3_reads" if name in {"GET", "HEAD"} else "s3_writes"] += count["requests"]
        elif service == "dynamodb":
            sums["dynamodb_requests"] += count["requests"]
    return sums


@dataclass
class Indexed:
    """All pages, indexed."""

    receipt: Receipt
    """Of the corpus."""
    requests: dict[str, int]
    """What the emulator counted meanwhile, by the receipt's field."""
    job_ids: list[str]
    stored_bytes: int
    """Of the objects in the content bucket."""
    batch_id: str
    """Of the first `TOGETHER` jobs."""


@pytest.fixture(scope="module")
def indexed(own: RunningStack, client: Client) -> Indexed:
    """Index the pages."""
    drained(own)
    before = counted(own)
    urls = [f"{own.site}/{number}.html" for number in range(JOBS)]
    # Full batches, messages that come one by one, and jobs that are alone.
    batch = client.submit(urls[:TOGETHER], CORPUS)
    job_ids = [*(batch.job_ids or ()), *(client.submit(url, CORPUS).job_id for url in urls[TOGETHER:-ALONE])]
    jobs = client.wait(job_ids, 120)
    jobs += [index(client, url, CORPUS) for url in urls[-ALONE:]]
    assert {job.status for job in jobs} == {"done"}
    drained(own)
    requests = {name: count - before[name] for name, count in counted(own).items()}
    receipt = client.receipt(corpus_name=CORPUS)
    return Indexed(receipt, requests, job_ids, stored_bytes(own), str(batch.batch_id))


def stored_bytes(stack: RunningStack) -> int:
    make: Any = boto3.client
    known = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": stack.region}
    pages = make("s3", endpoint_url=stack.aws_endpoint, **known).get_paginator("list_objects_v2")
    listed = pages.paginate(Bucket=stack.resources["ContentBucket"])
    return sum(found["Size"] for page in listed for found in page.get("Contents", ()))


def show(capsys: pytest.CaptureFixture[str], what: str, found: object) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{what}: {found}\n")


@pytest.mark.shows("X7")
def test_the_sums_of_receipts_are_the_requests_that_the_emulator_counted(
    indexed: Indexed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (indexed.receipt.jobs, indexed.receipt.unknown_jobs) == (JOBS, 0)
    found = {name: getattr(indexed.receipt, name) for name in indexed.requests}
    show(capsys, "receipts and emulator", {name: (found[name], indexed.requests[name]) for name in found})
    # Reads of jobs and the authorizers look callers up as well: those requests are no job's.
    lookups, all_of_dynamodb = found.pop("dynamodb_requests"), indexed.requests["dynamodb_requests"]
    assert 1 + JOBS - TOGETHER <= lookups <= all_of_dynamodb
    assert found == pytest.approx({name: indexed.requests[name] for name in found}, rel=TOLERANCE)


@pytest.mark.shows("X7")
def test_shares_of_invocations_sum_up_to_what_the_host_billed(
    own: RunningStack, indexed: Indexed, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = LogFolder(Path(own.state) / "logs" / "functions", [*WORKERS.values(), "OrchestratorResults"])
    reports = [report for record in logs.new() if (report := REPORT.search(record.message)) is not None]
    logs.close()
    billed = sum(int(each["ms"]) / 1000 * int(each["mb"]) / 1024 for each in reports)
    stages = [each for each in indexed.receipt.stages if each.stage in WORKERS]
    shared = sum(each.gb_s or 0 for each in stages)
    show(capsys, "GB-seconds of receipts and host", (shared, billed))
    assert sum(each.invocations or 0 for each in stages) == pytest.approx(len(reports), rel=TOLERANCE)
    # The host also bills what is around a handler: some milliseconds of each invocation.
    assert shared == pytest.approx(billed, rel=0.25)


def test_bytes_are_those_of_the_objects_that_were_stored(indexed: Indexed) -> None:
    assert indexed.receipt.bytes_stored == indexed.stored_bytes


@pytest.mark.shows("X7")
def test_jobs_sum_up_to_their_batch(client: Client, indexed: Indexed) -> None:
    whole = client.batch(indexed.batch_id, receipt=True).receipt
    jobs = [client.get(job_id, receipt=True) for job_id in indexed.job_ids[:TOGETHER]]
    assert whole is not None
    for name in (
        "gb_s",
        "usd",
        "sqs_requests",
        "s3_writes",
        "chunks",
        "tokens",
        "bytes_fetched",
        "bytes_stored",
    ):
        parts = [getattr(job.receipt, name) for job in jobs]
        assert sum(parts) == pytest.approx(getattr(whole, name), abs=1e-3), name
    assert whole.chunks == sum(job.chunk_count or 0 for job in jobs)
    assert client.get(indexed.job_ids[0]).receipt is None


def test_a_page_that_did_not_change_costs_no_embedding(
    own: RunningStack, client: Client, indexed: Indexed
) -> None:
    first = client.get(indexed.job_ids[0], receipt=True).receipt
    again = client.get(index(client, f"{own.site}/0.html", CORPUS).job_id, receipt=True).receipt
    assert first is not None
    assert again is not None
    assert (first.chunks_embedded, first.chunks_reused, first.chunks_removed) == (first.chunks, 0, 0)
    assert (again.chunks, again.chunks_embedded, again.chunks_removed) == (0, 0, 0)
    assert (again.tokens, again.bytes_stored) == (0, 0)


def test_another_value_than_true_and_false_is_refused(own: RunningStack) -> None:
    with own.http() as http:
        for path in ("/orchestrator/jobs", f"/orchestrator/jobs/{uuid.uuid4()}"):
            answer = http.get(path, params={"receipt": "1"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "validation_error")
            assert answer.json()["error"]["field"] == "query.receipt"


@pytest.mark.shows("X7")
def test_a_trace_ends_with_the_receipt(own: RunningStack, indexed: Indexed) -> None:
    asked = ("trace", indexed.job_ids[0], "--state", own.state)
    shown = indexmill(*asked)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("receipt"))
    assert [line.split()[0] for line in lines[at + 1 : at + 6]] == ["submission", *WORKERS, "total"]
    assert "bytes fetched" in lines[-1]
    found = json.loads(indexmill(*asked, "--json").stdout)["receipt"]
    assert found["jobs"] == 1
