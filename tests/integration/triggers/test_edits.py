"""Messages of a function with a mistake in it: its next version gets them at once, and counts no crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest_asyncio

from local.compute.host import HostOptions, LambdaHost
from local.stack.function_errors import FunctionErrors
from local.template.spec import FunctionSpec
from local.triggers.sqs import SqsEventSource
from tests.integration.triggers.harness import ACCOUNT, REGION, Queue, until

Start = Callable[..., Awaitable[SqsEventSource]]
MakeQueue = Callable[..., Queue]

WORKING = """
import json
import pathlib

def handler(event, context):
    with (pathlib.Path(__file__).parent.parent / "seen.jsonl").open("a") as seen:
        for record in event["Records"]:
            count = record["attributes"]["ApproximateReceiveCount"]
            seen.write(json.dumps([record["body"], count]) + "\\n")
"""
RAISING = WORKING + "    raise LookupError('no such shelf')\n"
BROKEN = "def handler(event, context:\n"
HIDDEN_S = 600


class Shop:
    """A function whose code can be edited, on a host with hot reload."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.code.mkdir()
        self._seen = folder / "seen.jsonl"
        self.edit(WORKING)
        spec = FunctionSpec("Function", "function", "app.handler", self.code, (), 30, 256, {})
        options = HostOptions(preload=())
        self.host = LambdaHost(
            [spec], region=REGION, log_dir=folder / "logs", account_id=ACCOUNT, options=options
        )
        self.lines: list[str] = []
        self.host.listen(FunctionErrors(self.lines.append, root=folder).on_log)

    def edit(self, code: str) -> None:
        (self.code / "app.py").write_text(code)

    def seen(self) -> list[list[str]]:
        """Return body and receive count of each record that reached the handler."""
        return (
            [json.loads(line) for line in self._seen.read_text().splitlines()] if self._seen.exists() else []
        )

    def errors(self) -> int:
        return self.host.stats()["function"].errors

    async def serve(self, queue: Queue, start_source: Start) -> SqsEventSource:
        """Start with the code as it is: an edit in the 100 ms after the first look is noticed late."""
        await self.host.start()
        watch = partial(self.host.code_version, "function")
        return await start_source(queue, self.host, code_version=watch)


@pytest_asyncio.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path)
    yield made
    await made.host.stop()


async def test_an_edit_gives_the_messages_of_failed_invocations_to_the_new_code(
    shop: Shop, queue: MakeQueue, start_source: Start
) -> None:
    shop.edit(RAISING)
    q = queue(visibility_s=HIDDEN_S)
    await q.send("a", "b")
    await shop.serve(q, start_source)
    await until(lambda: len(shop.seen()) == 2, limit_s=20)
    await until(lambda: shop.errors() >= 1)
    assert shop.lines[0].startswith(
        "function failed at code/app.py:10: LookupError: no such shelf (see more: "
    )
    assert await q.counts() == (0, 2), "hidden, as on AWS"
    shop.edit(RAISING + "# still wrong\n")
    await until(lambda: len(shop.seen()) == 4, limit_s=20)
    shop.edit(WORKING)
    await until(lambda: len(shop.seen()) == 6, limit_s=20)
    await until(q.is_empty)
    assert {count for _, count in shop.seen()} == {"1"}, "three mistakes are no crash of the message"


async def test_without_an_edit_they_stay_hidden(shop: Shop, queue: MakeQueue, start_source: Start) -> None:
    shop.edit(RAISING)
    q = queue(visibility_s=HIDDEN_S)
    await q.send("a")
    await shop.serve(q, start_source)
    await until(lambda: shop.errors() == 1, limit_s=20)
    await asyncio.sleep(1.0)
    assert (await q.counts(), len(shop.seen())) == ((0, 1), 1)


async def test_after_a_failed_import_they_are_visible_and_wait_for_the_next_edit(
    shop: Shop, queue: MakeQueue, start_source: Start
) -> None:
    shop.edit(BROKEN)
    q = queue(visibility_s=HIDDEN_S)
    await q.send("a")
    source = await shop.serve(q, start_source)

    async def visible() -> bool:
        return await q.counts() == (1, 0)

    await until(lambda: source.stats().given_back >= 1, limit_s=20)
    await until(visible)
    (line,) = shop.lines
    assert line.startswith("function failed at code/app.py:1: Runtime.UserCodeSyntaxError: Syntax error in ")
    await until(lambda: shop.errors() == 2, limit_s=20)  # one after the first pause, not one after another
    shop.edit(WORKING)
    await until(lambda: shop.seen() == [["a", "1"]], limit_s=20)
    await until(q.is_empty)
    assert shop.errors() <= 3


async def test_after_a_stop_they_are_visible_since_edits_meanwhile_are_not_noticed(
    shop: Shop, queue: MakeQueue, start_source: Start
) -> None:
    shop.edit(RAISING)
    q = queue(visibility_s=HIDDEN_S)
    await q.send("a")
    source = await shop.serve(q, start_source)
    await until(lambda: shop.errors() == 1, limit_s=20)
    await source.stop()
    assert await q.counts() == (1, 0)
