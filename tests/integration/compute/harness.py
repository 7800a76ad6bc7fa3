"""Lambda host on functions that a test writes, with views of its processes and logs."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.compute.host import HostOptions, LambdaHost, LogRecord
from local.compute.launcher import LaunchMode
from local.template.spec import FunctionSpec, InvokeResult

REGION = "eu-west-1"
ACCOUNT = "123456789012"

ECHO = """
import os

def handler(event, context):
    return {"event": event, "pid": os.getpid()}
"""


async def until(condition: Callable[[], Any], limit_s: float = 8.0) -> None:
    """Wait until `condition` is true. Raises AssertionError after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return state not in "ZX"


def processes_in(folder: Path) -> list[int]:
    """Return the processes that have their working directory in `folder`."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            inside = link.readlink().is_relative_to(folder)
        except OSError:
            continue
        if inside and alive(int(link.parent.name)):
            found.append(int(link.parent.name))
    return found


def value(result: InvokeResult) -> Any:
    """Return the handler's result. Raises AssertionError for a function error."""
    assert result.function_error is None, result.payload.decode()
    return json.loads(result.payload)


def fault(result: InvokeResult) -> tuple[str, str]:
    """Return the error's type and its message, without the request id of the platform's errors."""
    assert result.function_error == "Unhandled", result.payload[:200]
    document = json.loads(result.payload)
    message = document["errorMessage"].removeprefix(f"RequestId: {result.request_id} Error: ")
    return document["errorType"], message


@dataclass
class Lab:
    """Writes functions and starts hosts on them; `close` ends what a test left running."""

    folder: Path
    launcher: LaunchMode = "fork"
    records: list[LogRecord] = field(default_factory=list)
    hosts: list[LambdaHost] = field(default_factory=list)

    def write(self, path: str, code: str) -> Path:
        """Put a file of code below the lab's folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(code))
        return file

    def function(self, code: str = ECHO, name: str = "fn", **spec: Any) -> FunctionSpec:
        """Return a function with `code` in its `app.py`; other arguments as in `FunctionSpec`."""
        self.write(f"code/{name}/app.py", code)
        arguments: dict[str, Any] = {
            "handler": "app.handler",
            "layer_dirs": (),
            "timeout_s": 10,
            "memory_mb": 256,
        } | spec
        arguments.setdefault("environment", {})
        return FunctionSpec(
            f"{name.title()}Function", name, code_dir=self.folder / "code" / name, **arguments
        )

    def host(
        self, *functions: FunctionSpec, extra: dict[str, str] | None = None, **options: Any
    ) -> LambdaHost:
        """Return a host that was not started; `options` as in `HostOptions`, `preload` empty by default."""
        chosen = {"launcher": self.launcher, "preload": (), "on_log": self.records.append} | options
        host = LambdaHost(
            functions,
            region=REGION,
            account_id=ACCOUNT,
            log_dir=self.folder / "logs",
            extra_environment=extra,
            options=HostOptions(**chosen),
        )
        self.hosts.append(host)
        return host

    async def start(self, *functions: FunctionSpec, **options: Any) -> LambdaHost:
        """Start and return a host."""
        host = self.host(*functions, **options)
        await host.start()
        return host

    def lines(self, stream: str, request_id: str | None = "any") -> list[str]:
        """Return the logged messages of one stream, of one request if it is given."""
        wanted = [record for record in self.records if record.stream == stream]
        return [record.message for record in wanted if request_id in ("any", record.request_id)]

    async def close(self) -> None:
        """Stop every host. Raises AssertionError when a process of a function is left."""
        await asyncio.gather(*(host.stop() for host in self.hosts))
        assert [host.supervisor_pid for host in self.hosts] == [0] * len(self.hosts)
        assert processes_in(self.folder) == []


async def call(host: LambdaHost, event: Any = None, function: str = "fn") -> InvokeResult:
    """Invoke with an event."""
    return await host.invoke(function, json.dumps(event).encode())


async def answer(host: LambdaHost, event: Any = None, function: str = "fn") -> Any:
    """Invoke with an event; return the handler's result."""
    return value(await call(host, event, function))


def noted_pid(file: Path) -> int:
    """Return the process id that a handler wrote into `file`; 0 before it did."""
    try:
        return int(file.read_text() or 0)
    except FileNotFoundError:
        return 0
