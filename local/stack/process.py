"""Process that runs a stack: in the foreground for `indexmill up`, detached for `up --detach`.

Detached it reads its options as one JSON line from standard input, and answers with one on standard output:
`{"ready": {…}}` or `{"error": sentence, "usage": …}`. It ends on SIGTERM or SIGINT, and when `bound` also
when its standard input closes, so that it does not outlive its parent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from local.stack.options import StackOptions, decode
from local.stack.preparation import WrongUsage
from local.stack.stack import Stack
from local.template.intrinsics import TemplateError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def serve(
    options: StackOptions,
    *,
    on_ready: Callable[[dict[str, Any]], None],
    report: Callable[[str], None],
    bound: bool = False,
) -> None:
    """Run a stack until a signal arrives. Raises the error that keeps it from starting or running."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, asked.set)
    if bound:
        loop.add_reader(sys.stdin.fileno(), _end_with, sys.stdin.fileno(), asked)
    stack = Stack(options, report)
    try:
        info = await _unless(asked, stack.start())
        if info is not None:
            on_ready(info)
            await _unless(asked, stack.run())
    finally:
        if bound:
            loop.remove_reader(sys.stdin.fileno())
        await stack.stop()


def _end_with(pipe: int, asked: asyncio.Event) -> None:
    if not os.read(pipe, 1024):
        asked.set()


async def _unless(asked: asyncio.Event, work: Any) -> Any:
    """Return the work's result, or None when the event came first; the work is cancelled then."""
    task = asyncio.ensure_future(work)
    waiter = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        waiter.cancel()
        task.cancel()
        await asyncio.wait({task})


def main() -> int:
    """Run a detached stack; its log is standard error."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options, bound = decode(sys.stdin.readline())
    answered = False

    def answer(message: dict[str, Any]) -> None:
        nonlocal answered
        if not answered:
            answered = True
            os.write(1, json.dumps(message).encode() + b"\n")
            # Later output goes to the log; the parent that waits for the line sees the end of file as well.
            os.dup2(2, 1)

    def report(sentence: str) -> None:
        logging.getLogger("stack").warning("%s", sentence)

    try:
        asyncio.run(serve(options, on_ready=lambda info: answer({"ready": info}), report=report, bound=bound))
    except Exception as error:  # reported to the parent, and to the log
        logging.getLogger("stack").exception("the stack ended")
        usage = isinstance(error, WrongUsage | TemplateError)
        answer({"error": str(error) or type(error).__name__, "usage": usage})
        return 1
    answer({"error": "the stack was asked to stop before it was ready"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
