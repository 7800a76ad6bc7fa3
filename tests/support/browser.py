"""JavaScript engines: Node, and a headless Chromium driven by its debugging protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

_FLAGS: Final = (
    "--headless=new",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)
_START_S: Final = 40.0
_POLL_S: Final = 0.05


def node() -> str | None:
    """Return the Node of this machine."""
    return shutil.which("node")


def node_has_event_source() -> bool:
    """Return whether Node has `EventSource`; versions before 20.18 and 22.3 do not."""
    found = node()
    if found is None:
        return False
    command = [found, "--experimental-eventsource", "-e", "new EventSource('http://127.0.0.1:1/').close()"]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


@dataclass
class Page:
    """One tab."""

    socket: aiohttp.ClientWebSocketResponse
    _number: int = field(default=0)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of `expression`, awaited; raises RuntimeError with what it threw."""
        self._number += 1
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        await self.socket.send_json({"id": self._number, "method": "Runtime.evaluate", "params": parameters})
        while True:
            answer = json.loads((await self.socket.receive(60)).data)
            if answer.get("id") == self._number:
                break
        result = answer["result"]
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    async def until(self, expression: str, within_s: float) -> Any:
        """Return the first value of `expression` that is true."""
        deadline = time.monotonic() + within_s
        while not (found := await self.evaluate(expression)):
            if time.monotonic() > deadline:
                text = await self.evaluate("document.body.innerText")
                raise AssertionError(f"not within {within_s:g} s: {expression}; the page says {text!r}")
            await asyncio.sleep(_POLL_S)
        return found


@contextlib.asynccontextmanager
async def opened(program: str, url: str) -> AsyncIterator[Page]:
    """Open `url` in a browser of its own, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="indexmill-browser-", ignore_cleanup_errors=True) as profile:
        # In a container, and as root anywhere, Chromium cannot make its own sandbox; the page is ours.
        flags = [*_FLAGS, "--no-sandbox", f"--user-data-dir={profile}"]
        process = await asyncio.create_subprocess_exec(
            program, *flags, url, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as session:
                address = await _address(session, port, url)
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    page = Page(socket)
                    # The tab says where it is going before it is there.
                    there = "location.href !== 'about:blank' && document.readyState === 'complete'"
                    await page.until(there, _START_S)
                    yield page
        finally:
            # Its helpers are in the process group that it leads.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    deadline = time.monotonic() + _START_S
    while not file.is_file() or not file.read_text():
        if process.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Chromium did not start (exit status {process.returncode})")
        await asyncio.sleep(_POLL_S)
    return int(file.read_text().split()[0])


async def _address(session: aiohttp.ClientSession, port: int, url: str) -> str:
    deadline = time.monotonic() + _START_S
    while True:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = await answer.json(content_type=None)
        found = [each for each in pages if each["type"] == "page" and each["url"].startswith(url)]
        if found:
            return str(found[0]["webSocketDebuggerUrl"])
        if time.monotonic() > deadline:
            raise RuntimeError(f"Chromium opened no page at {url}")
        await asyncio.sleep(_POLL_S)
