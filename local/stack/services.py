"""Services of a stack: the processes beside the functions, started, monitored, restarted, stopped."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from local.backends.ministack import MiniStack
from local.backends.postgres import EmbeddedPostgres
from local.backends.process import Backend

MOST_RESTARTS: Final = 5
WITHIN_S: Final = 60.0
_BACKOFF_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0)


class Service(Protocol):
    """One process that the stack needs."""

    name: str

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""

    async def start(self) -> None:
        """Start it, also again, at the same address; return when it is ready."""

    async def stop(self) -> None:
        """End it; no effect when it is not running."""

    async def ended(self) -> int:
        """Wait until it ends by itself; return the exit status, negative for a signal."""


class StandIn:
    """Stand-in for an external service."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._backend.pid

    async def start(self) -> None:
        """Start and wait until it is ready."""
        await self._backend.start()

    async def stop(self) -> None:
        """End it."""
        await self._backend.stop(timeout_s=2.0)

    async def ended(self) -> int:
        """Wait for its end."""
        return await self._backend.wait()


class Aws:
    """AWS endpoint."""

    name = "aws"

    def __init__(self, ministack: MiniStack) -> None:
        self._ministack = ministack
        self.endpoint = ""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._ministack.pid

    @property
    def prompt_long_polls(self) -> bool:
        """Return whether waiting receives are answered at once."""
        return self._ministack.prompt_long_polls

    async def start(self) -> None:
        """Start; sets `endpoint`."""
        self.endpoint = await self._ministack.start()

    def save(self) -> None:
        """Write its state to disk now."""
        self._ministack.save()

    async def stop(self) -> None:
        """End it; its state is written first."""
        await self._ministack.stop()

    async def ended(self) -> int:
        """Wait for its end."""
        return await self._ministack.wait()


class Postgres:
    """Database server."""

    name = "postgres"

    def __init__(self, state_dir: Path, port: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends: asyncio.Queue[int] = asyncio.Queue()
        self._server = EmbeddedPostgres(state_dir, port=port, on_exit=self._on_exit)
        self.url = ""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._server.pid

    async def start(self) -> None:
        """Start; sets `url`."""
        self.url = await asyncio.to_thread(self._server.start)

    async def stop(self) -> None:
        """End it with a checkpoint."""
        await asyncio.to_thread(self._server.stop, 5.0)

    async def delete(self) -> None:
        """End it and delete its data."""
        await asyncio.to_thread(self._server.delete)

    async def ended(self) -> int:
        """Wait for its end."""
        return await self._ends.get()

    def _on_exit(self, status: int) -> None:
        # Runs in the server's monitoring thread.
        self._loop.call_soon_threadsafe(self._ends.put_nowait, status)


class RestartLimitReached(RuntimeError):
    """Raised when a service ended too often."""


class ServiceMonitor:
    """Restarts services that end by themselves, with growing delays, up to a limit.

    Args:
        report: Called with a sentence for each event.
        changed: Called after each start, when process ids are new.
    """

    def __init__(self, report: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._report = report
        self._changed = changed
        self._tasks: list[asyncio.Task[None]] = []
        self.restarts: dict[str, int] = {}
        self.down: set[str] = set()
        """Names of services that ended and are not running again yet."""

    def watch(self, service: Service, after_restart: Callable[[], Awaitable[None]] | None = None) -> None:
        """Monitor a started service; `after_restart` restores what it lost."""
        self.restarts[service.name] = 0
        self._tasks.append(
            asyncio.create_task(self._keep_running(service, after_restart), name=f"monitor-{service.name}")
        )

    async def wait_for_failure(self) -> None:
        """Wait for a service at its restart limit. Raises RestartLimitReached, or a monitor's error."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Stop monitoring."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_running(
        self, service: Service, after_restart: Callable[[], Awaitable[None]] | None
    ) -> None:
        recent: deque[float] = deque()
        while True:
            status = await service.ended()
            self.down.add(service.name)
            how = f"signal {-status}" if status < 0 else f"status {status}"
            problem: str | None = f"{service.name} ended ({how})"
            while problem:
                now = time.monotonic()
                while recent and recent[0] < now - WITHIN_S:
                    recent.popleft()
                if len(recent) >= MOST_RESTARTS:
                    raise RestartLimitReached(
                        f"{problem}; given up after {MOST_RESTARTS} restarts in {WITHIN_S:g} s"
                    )
                self._report(f"{problem}; restarting it")
                await asyncio.sleep(_BACKOFF_S[len(recent)])
                recent.append(time.monotonic())
                problem = await self._start_again(service, after_restart)
            self.down.discard(service.name)
            self._report(f"{service.name} is running again")

    async def _start_again(
        self, service: Service, after_restart: Callable[[], Awaitable[None]] | None
    ) -> str | None:
        """Restart it; return None when it runs again, else the problem."""
        self.restarts[service.name] += 1
        try:
            await service.start()
            self._changed()
            if after_restart is not None:
                await after_restart()
        except Exception as error:  # noqa: BLE001 - after any error it is retried
            await service.stop()
            return f"{service.name} did not start ({error})"
        return None
