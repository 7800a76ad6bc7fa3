"""Soak of the real poller, Lambda host and SQS endpoint while workers die; see `soak`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from local.compute.host import HostOptions, LambdaHost, PoolLimits
from local.template.spec import FunctionSpec, InvokeResult
from tests.integration.triggers import soak_worker
from tests.integration.triggers.harness import ACCOUNT, REGION, Queue, until
from tests.integration.triggers.soak_ledger import Delivery, Figures, Ledger

TIMEOUT_S = 1
AHEAD = 500
"""Most messages that are sent and not processed: the endpoint scans each at every receive."""
FATES = {"kill": 40, "exit": 40, "segfault": 40, "raise": 5, "report": 20, "hang": 1}
"""Relative frequency of each end of a delivery."""


@dataclass(frozen=True)
class Size:
    """Size of a soak."""

    messages: int
    ill_fated: float
    """Share of messages that crash their first delivery; a third of these crash the next one too."""
    kills_each_s: float
    """Workers that are killed from outside while they process records, per second."""
    visibility_s: int = 3
    """Above the function's timeout, as AWS demands, and short: each failed delivery waits for it."""
    environments: int = 8


class RecordingInvoker:
    """Invoker over a host that records deliveries and their results."""

    def __init__(self, host: LambdaHost, ledger: Ledger) -> None:
        self._host = host
        self._ledger = ledger

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        records = json.loads(payload)["Records"]
        numbers = {each["messageId"]: int(json.loads(each["body"])["n"]) for each in records}
        began = time.monotonic()
        deliveries = [
            Delivery(numbers[each["messageId"]], int(each["attributes"]["ApproximateReceiveCount"]), began)
            for each in records
        ]
        for each in deliveries:
            self._ledger.deliveries[each.number].append(each)
        result = await self._host.invoke(function, payload)
        ended = time.monotonic()
        for each in deliveries:
            each.ended = ended
        reported = [] if result.function_error else json.loads(result.payload)["batchItemFailures"]
        failed = {numbers[each["itemIdentifier"]] for each in reported}
        self._ledger.close(deliveries, failed, result)
        return result


@dataclass
class Soak:
    """One run; `folder` takes the function, its journal and its logs."""

    size: Size
    queue: Queue
    folder: Path
    chance: random.Random = field(default_factory=lambda: random.Random(20))

    async def run(self, limit_s: float) -> Figures:
        """Send everything, kill workers meanwhile, and return when all is processed or after `limit_s`."""
        code = self.folder / "code"
        code.mkdir()
        shutil.copy(soak_worker.__file__, code / "app.py")
        ledger = Ledger(self.folder / "journal")
        host = self._host(code, ledger.journal)
        source = self.queue.source(
            RecordingInvoker(host, ledger),
            maximum_concurrency=self.size.environments,
            report_batch_item_failures=True,
            function_timeout_s=float(TIMEOUT_S),
        )
        began = time.monotonic()
        await host.start()
        await source.start()
        killer = asyncio.create_task(self._kill(ledger, code))
        try:
            await self._send(ledger, began + limit_s)
            killer.cancel()  # else the last few would be killed at each delivery
            with contextlib.suppress(AssertionError):  # missing ones are counted below
                await until(lambda: ledger.settled >= self.size.messages, began + limit_s - time.monotonic())
                await until(self.queue.is_empty)
        finally:
            killer.cancel()
            await source.stop()
            await host.stop()
        return ledger.figures(self.size.messages, time.monotonic() - began)

    def _host(self, code: Path, journal: Path) -> LambdaHost:
        spec = FunctionSpec(
            "Function", "function", "app.handler", code, (), TIMEOUT_S, 256, {"JOURNAL": str(journal)}
        )
        limits = PoolLimits(environments=self.size.environments)
        options = HostOptions(preload=(), limits=limits, hot_reload=False)
        return LambdaHost(
            [spec], region=REGION, log_dir=self.folder / "logs", account_id=ACCOUNT, options=options
        )

    def _bodies(self) -> deque[str]:
        names, weights = list(FATES), list(FATES.values())

        def fates() -> list[str]:
            dealt: list[str] = []
            while self.chance.random() < (1 / 3 if dealt else self.size.ill_fated):
                dealt += self.chance.choices(names, weights)
            return dealt

        return deque(json.dumps({"n": number, "fates": fates()}) for number in range(self.size.messages))

    async def _send(self, ledger: Ledger, deadline: float) -> None:
        bodies = self._bodies()
        while bodies:
            unsettled = self.size.messages - len(bodies) - ledger.settled
            if unsettled < AHEAD:
                await self.queue.send(*(bodies.popleft() for _ in range(min(50, len(bodies)))))
            else:
                await asyncio.sleep(0.02)
            if time.monotonic() > deadline:
                return

    async def _kill(self, ledger: Ledger, code: Path) -> None:
        """Kill working processes at random moments; only those that work in `code`."""
        due = time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            ledger.read_journal()
            if ledger.busy and time.monotonic() >= due:
                due = time.monotonic() + self.chance.expovariate(self.size.kills_each_s)
                pid = self.chance.choice(list(ledger.busy))
                if _works_in(pid, code):
                    os.kill(pid, signal.SIGKILL)
                    ledger.killed(pid, time.monotonic())


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder
    except OSError:
        return False
