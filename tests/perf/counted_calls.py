"""Calls of a job that AWS charges for, counted on a running stack at an exact fill of batches.

    python -m tests.perf.counted_calls

Each mode sets the event source mappings to its batch size, submits its URLs and counts requests and
invocations. `COUNTED` is the outcome: the cost model computes with it, and
`tests/integration/test_counted_calls.py` counts again.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import boto3

from tests.perf.accounting import Accountant
from tests.perf.aws_requests import between, metered, read_counts
from tests.perf.load import Driver
from tests.perf.stack_under_test import (
    embedding_parameters,
    embedding_stub,
    page_parameters,
    page_server,
    stack,
)

WORKERS: Final = ("ScraperWorker", "ChunkingWorker", "EmbeddingWorker", "OrchestratorResults")
_WINDOW_S: Final = 2
"""Seconds in which a batch has to fill; it is full at once, since jobs come in multiples of it."""
_SMALL_BYTES: Final = 9_200
"""Text of a page: the mean of 200 pages of Debian's documentation."""
_LONG_BYTES: Final = 70_000
_SENTENCE: Final = "The keeper of the lantern wrote a letter beside the harbour window. "


@dataclass(frozen=True, slots=True)
class Mode:
    """One way in which jobs come."""

    title: str
    fill: int
    """Messages of each batch."""
    submit: int = 100
    """URLs of each submit, at most all of them."""
    page: str = "small.html"
    unchanged: bool = False
    jobs: int = 100


@dataclass(frozen=True, slots=True)
class Calls:
    """Metered calls of one job; SQS without receives that find nothing."""

    api: float
    invocations: float
    """Of each worker and of each function behind the API, all together."""
    sqs_units: float
    """Requests, once for each started 64 KiB; one delete for each batch, as on AWS."""
    s3_write: float
    s3_read: float
    dynamodb_write: float
    dynamodb_read: float


MODES: Final = {
    "single": Mode("one at a time, warm", 1, submit=1, jobs=5),
    "four": Mode("batches of four", 4),
    "full": Mode("full batches", 10),
    "long": Mode("page over 56 kB of text, batches of four", 4, page="long.html", jobs=60),
    "unchanged": Mode("unchanged page, batches of four", 4, unchanged=True),
}


def count_all() -> dict[str, Calls]:
    """Start a stack and return the calls of a job in every mode."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="indexmill-calls-")))
        (folder / "small.html").write_text(_page(_SMALL_BYTES))
        (folder / "long.html").write_text(_page(_LONG_BYTES))
        pages = resources.enter_context(page_server(folder))
        stub = resources.enter_context(embedding_stub())
        started = resources.enter_context(stack([*page_parameters(pages), *embedding_parameters(stub)]))
        return asyncio.run(_count(started.info, f"http://{pages.address}"))


async def _count(info: Mapping[str, Any], site: str) -> dict[str, Calls]:
    found = {}
    first = Driver(info, site, ["small.html"])
    again = first.urls(MODES["unchanged"].jobs)
    async with first:
        await first.wait(list((await first.flood(again, 100, 1)).at), 60.0, 0.1)
    for number, (name, mode) in enumerate(MODES.items(), 1):
        await asyncio.to_thread(_configure, info, mode.fill)
        async with Driver(info, site, [mode.page], force=not mode.unchanged) as driver:
            driver.begin_at(1_000 * number)
            # A receive that waits at a queue has the batch size from before.
            warm = await driver.flood(driver.urls(2 * mode.fill), mode.submit, 1)
            await driver.wait(list(warm.at), 60.0, 0.1)
            found[name] = await _run(info, driver, mode, again if mode.unchanged else driver.urls(mode.jobs))
    return found


async def _run(info: Mapping[str, Any], driver: Driver, mode: Mode, urls: list[str]) -> Calls:
    accountant = Accountant(info)
    invoked, before = accountant.snapshot().invocations, read_counts(info["aws_endpoint"])
    if mode.fill == 1:
        await driver.one_at_a_time(urls)
    else:
        sent = await driver.flood(urls, mode.submit, 1)
        await driver.wait(list(sent.at), 60.0, 0.1)
    await asyncio.sleep(0.5)  # the last deletes are sent a little later
    counts = between(before, read_counts(info["aws_endpoint"]))
    after = accountant.snapshot().invocations
    calls = {name: after[name] - invoked.get(name, 0) for name in after}
    # The gateway caches the authorizer's answer for a minute: its calls are none of a job.
    behind_api = calls["OrchestratorApi"]
    batches = sum(calls[name] for name in WORKERS)
    found = metered({name: count for name, count in counts.items() if "Delete" not in name})
    jobs = len(urls)
    return Calls(
        api=behind_api / jobs,
        invocations=(behind_api + batches) / jobs,
        sqs_units=(found["sqs_units"] + batches) / jobs,
        s3_write=found["s3_write"] / jobs,
        s3_read=found["s3_read"] / jobs,
        dynamodb_write=found["dynamodb_write"] / jobs,
        dynamodb_read=found["dynamodb_read"] / jobs,
    )


def _configure(info: Mapping[str, Any], fill: int) -> None:
    """Let the workers' event source mappings deliver batches of `fill` messages."""
    client: Any = boto3.client(
        "lambda",
        endpoint_url=info["invoke_endpoint"],
        region_name=info["region"],
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )
    window = 0 if fill == 1 else _WINDOW_S
    for mapping in client.list_event_source_mappings()["EventSourceMappings"]:
        if "DeadLetters" not in mapping["FunctionArn"]:
            client.update_event_source_mapping(
                UUID=mapping["UUID"], BatchSize=fill, MaximumBatchingWindowInSeconds=window
            )


def _page(text_bytes: int) -> str:
    """Return an HTML page with about so much text, in paragraphs of ten sentences."""
    paragraph = _SENTENCE * 10
    body = "".join(f"<p>{paragraph}</p>" for _ in range(text_bytes // len(paragraph)))
    return f"<!doctype html><html><head><title>Keeper</title></head><body><main>{body}</main></body></html>"


def main() -> None:
    """Count and print."""
    print(json.dumps({name: asdict(calls) for name, calls in count_all().items()}, indent=1))


if __name__ == "__main__":
    main()
