"""Execution environment: Lambda's rules between a process, its Runtime API and its invocation."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Protocol

from local.compute import error_documents
from local.compute.clock import epoch_ms
from local.compute.cpu_share import CpuBudget
from local.compute.invocation import Invocation
from local.compute.launcher import SupervisorLost
from local.compute.memory import Groups
from local.compute.process import EnvironmentProcess, HostContext
from local.compute.reports import InvocationLog
from local.compute.runtime_api import RuntimeConnection
from local.template.spec import FunctionSpec

InitError = Callable[[str], bytes]
"""Builds the error document for the request that the environment was started for."""

_SAMPLE_S = 0.1


class Owner(Protocol):
    """Callbacks of an environment to its pool."""

    def ready(self, environment: ExecutionEnvironment) -> None:
        """Handle a successful initialisation."""

    def free(self, environment: ExecutionEnvironment) -> None:
        """Handle the end of an invocation whose process lives."""

    def ended(
        self, environment: ExecutionEnvironment, init_error: InitError | None, unsent: Invocation | None
    ) -> None:
        """Handle its end; `init_error` if before it was ready, `unsent` was assigned, not taken."""

    def finished(self, failed: bool) -> None:
        """One invocation ended."""


class ExecutionEnvironment:
    """Environment: starting, then alternately free and busy, then ended. Runs on the event loop's thread."""

    def __init__(self, spec: FunctionSpec, owner: Owner, context: HostContext, code_version: int) -> None:
        self.code_version = code_version
        self.init_ms = 0.0
        self.free_since = 0.0
        self.usable = True
        self._spec = spec
        self._owner = owner
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._log = InvocationLog(context.logs, spec)
        self._process = EnvironmentProcess(context, self._log.line, self._ended)
        self._cpu = CpuBudget(spec.memory_mb, self._process)
        self._arn = context.factory.arn(spec).encode()
        self._next: RuntimeConnection | None = None
        self._current: Invocation | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._initialised = False
        self._began = 0.0
        self._peak_mb = 0.0
        self._sampled = 0.0

    @property
    def busy(self) -> bool:
        """Return whether an invocation is assigned."""
        return self._current is not None

    @property
    def pid(self) -> int:
        """Return the id of its process; 0 when none runs."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time so far, of the process and the children it waited for."""
        return self._process.cpu_seconds()

    async def start(self) -> None:
        """Start the process; `ready` or `ended` follows, also when this machine cannot start one."""
        try:
            await self._context.launcher.start()
            self._began = time.monotonic()
            await self._process.start(self._spec, self)
        except (OSError, SupervisorLost) as error:
            reason = str(error)
            self._give_up(lambda request_id: error_documents.not_started(request_id, reason))
            return
        if not self.usable:
            self._process.kill()
        elif not self._initialised:
            self._timer = self._loop.call_later(self._context.init_timeout_s, self._init_timed_out)

    async def stop(self) -> None:
        """End the process. An invocation in flight fails as if its process was terminated."""
        self.usable = False
        self._context.cpu.discard(self._cpu)  # a stopped process does not get SIGTERM
        await self._process.stop()

    def assign(self, invocation: Invocation) -> None:
        """Assign an invocation: sent at once if the runtime waits, else in response to its next `next`."""
        self._current = invocation
        self._timer = self._loop.call_later(self._spec.timeout_s, self._timed_out)
        if self._next is not None:
            self._send(self._next)

    def check_memory(self, groups: Groups) -> None:
        """Kill the process group when it uses more than the function's memory."""
        if (
            self._sample(groups) > self._spec.memory_mb
            and self._context.memory.enforced
            and self._current is not None
        ):
            self._abandon(
                error_documents.exited(self._current.request_id, signal.SIGKILL), "Runtime.ExitError"
            )

    def failed_for(self, invocation: Invocation, document: bytes) -> None:
        """Log that the initialisation failed as the failure of `invocation`, which will not be processed."""
        self._process.drain()
        took_ms = (time.monotonic() - self._began) * 1e3 if self._began else 0.0
        self._log.init_failed(invocation, document, took_ms, self._peak_mb)

    # RuntimePort:

    def connected(self, connection: RuntimeConnection) -> None:
        """Handle a new client."""
        self._process.connections.add(connection)

    def disconnected(self, connection: RuntimeConnection) -> None:
        """Handle a disconnect."""
        self._process.connections.discard(connection)
        if self._next is connection:
            self._next = None

    def next(self, connection: RuntimeConnection) -> None:
        """Handle a runtime that is ready for an invocation.

        A client of an environment that is being ended gets no response, nor does one that still owes a
        response itself.
        """
        if not self.usable or (self._current is not None and self._current.sent_at):
            return
        self._next = connection
        if not self._initialised:
            self._initialised = True
            self._cancel_timer()
            self._process.drain()
            self.init_ms = self._log.init_ms = (time.monotonic() - self._began) * 1e3
            self._owner.ready(self)
        elif self._current is not None:
            self._send(connection)

    def respond(self, request_id: str, body: bytes | None) -> bool:
        """Return the handler returned."""
        return self._complete(request_id, body, None)

    def fail(self, request_id: str, body: bytes | None) -> bool:
        """Return the handler raised."""
        return self._complete(request_id, body, "Unhandled")

    def init_failed(self, body: bytes | None) -> bool:
        """Return the import failed."""
        if self._initialised or not self.usable:
            return False
        document = body or error_documents.response_too_large()
        self._give_up(lambda _: document)
        return True

    # The invocation and the process:

    def _send(self, connection: RuntimeConnection) -> None:
        invocation = self._current
        if invocation is None:
            return
        self._next = None
        self._process.drain()
        self._log.start(invocation)
        self._context.memory.add(self)
        self._context.cpu.add(self._cpu)
        invocation.sent_at = time.monotonic()
        trace = invocation.trace_header().encode("latin-1", "replace").replace(b"\r", b"").replace(b"\n", b"")
        headers = (
            b"Lambda-Runtime-Aws-Request-Id: %s\r\nLambda-Runtime-Deadline-Ms: %d\r\n"
            b"Lambda-Runtime-Invoked-Function-Arn: %s\r\nLambda-Runtime-Trace-Id: %s\r\n"
        ) % (
            invocation.request_id.encode(),
            epoch_ms() + int(self._spec.timeout_s * 1000),
            self._arn,
            trace,
        )
        connection.send_event(headers, invocation.payload)

    def _complete(self, request_id: str, body: bytes | None, function_error: str | None) -> bool:
        current = self._current
        if current is None or not current.sent_at or current.request_id != request_id:
            return False
        if body is None:
            # The client treats the refusal as fatal and ends, so this environment cannot be reused.
            body, function_error, self.usable = error_documents.response_too_large(), "Unhandled", False
        self._settle(current, body if function_error is not None else None, None)
        self._owner.free(self)
        current.resolve(body, function_error)
        return True

    def _abandon(self, document: bytes, status: str) -> None:
        """End the invocation with `document` and the process with it."""
        self._process.kill()
        current = self._current
        if current is not None:
            self._settle(current, document, status)
        self._give_up(None)
        if current is not None:
            current.resolve(document, "Unhandled")

    def _settle(self, invocation: Invocation, failed: bytes | None, status: str | None) -> None:
        """Resolve the invocation; `failed` is the error document of one that did not succeed."""
        self._current = None
        self._cancel_timer()
        self._context.memory.discard(self)
        self._context.cpu.discard(self._cpu)
        if time.monotonic() - self._sampled > _SAMPLE_S:
            self._sample()
        self._process.drain()
        self._log.end(invocation, self._peak_mb, status, failed)
        self._owner.finished(failed is not None)

    def _timed_out(self) -> None:
        if self._current is not None:
            self._abandon(
                error_documents.timed_out(self._current.request_id, self._spec.timeout_s), "timeout"
            )

    def _init_timed_out(self) -> None:
        self._process.kill()
        self._give_up(lambda request_id: error_documents.timed_out(request_id, self._context.init_timeout_s))

    def _ended(self, wait_status: int, _cpu_s: float) -> None:
        """Handle the end of the process and its group."""
        if self._current is not None and self._current.sent_at:
            self._abandon(error_documents.exited(self._current.request_id, wait_status), "Runtime.ExitError")
        else:
            self._give_up(lambda request_id: error_documents.exited(request_id, wait_status))

    def _give_up(self, init_error: InitError | None) -> None:
        """Notify the owner, once."""
        self._cancel_timer()
        self._context.memory.discard(self)
        self._context.cpu.discard(self._cpu)
        unsent, self._current = self._current, None
        was_usable, self.usable = self.usable, False
        if was_usable or unsent is not None:
            self._owner.ended(self, None if self._initialised else init_error, unsent)

    def _sample(self, groups: Groups | None = None) -> float:
        self._sampled = time.monotonic()
        now = self._process.memory_mb(self._spec.memory_mb, groups)
        self._peak_mb = max(self._peak_mb, now)
        return now

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
