"""A Chromium of this machine with a fresh profile, whose only way to the network is a proxy of ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG")
"""Of the environment; a function's own has credentials."""
# The shell's background job ends with this process, however that ends, and kills the rest of its group.
_TIED: Final = 'exec 3<&0 0</dev/null; { cat <&3 >/dev/null; kill -9 0; } & exec 3<&-; exec "$@"'
_POLL_S: Final = 0.05
_WATCH_S: Final = 0.2
_END_S: Final = 5.0
_FEATURES_OFF: Final = (
    "AutofillServerCommunication",
    "CertificateTransparencyComponentUpdater",
    "DialMediaRouteProvider",
    "InterestFeedContentSuggestions",
    "IsolateOrigins",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "Translate",
    "WebRtcHideLocalIpsWithMdns",
    "site-per-process",
)
GUARDS: Final = {
    # Without it Chromium goes to loopback addresses by itself, whatever the proxy.
    "bypass": "--proxy-bypass-list=<-loopback>",
    # Names are the proxy's to resolve.
    "resolver": "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "webrtc": "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "quic": "--disable-quic",
}
"""Flags that close the ways around the proxy."""
_NOWHERE: Final = "https://127.0.0.1:9"
_FLAGS: Final = (
    "--headless",
    # Its own services: the proxy refuses that address.
    f"--apps-gallery-update-url={_NOWHERE}",
    f"--component-updater=url-source={_NOWHERE}",
    f"--gaia-url={_NOWHERE}",
    "--remote-debugging-port=0",
    "--blink-settings=imagesEnabled=false",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-site-isolation-trials",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # the name that older ones know
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-startup-window",
    "--password-store=basic",
    f"--disable-features={','.join(_FEATURES_OFF)}",
)


class StartError(Exception):
    """Chromium did not start."""


@asynccontextmanager
async def launched(
    program: str,
    *,
    proxy_port: int,
    user_agent: str,
    start_s: float,
    memory_bytes: int,
    on_excess: Callable[[str], None],
) -> AsyncIterator[str]:
    """Run `program` and yield the WebSocket URL of its DevTools; kill it and remove its profile at the end.

    It also ends when this process does. `on_excess` is called when its processes together have more than
    `memory_bytes` of their own memory. Raises StartError.
    """
    # Every file of it is below the profile.
    profile = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="indexmill-page-"))
    own = (
        f"--proxy-server=http://127.0.0.1:{proxy_port}",
        f"--user-agent={user_agent}",
        f"--user-data-dir={profile}",
    )
    try:
        process = await _started([program, *_FLAGS, *GUARDS.values(), *own], profile)
        watch = asyncio.create_task(_watch(process.pid, memory_bytes, on_excess))
        try:
            yield await _address(profile / "DevToolsActivePort", process, start_s)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await _end(process, profile)
    finally:
        await asyncio.to_thread(shutil.rmtree, profile, ignore_errors=True)


async def _started(command: list[str], profile: Path) -> asyncio.subprocess.Process:
    """Start `command` as the leader of a process group that ends with this process."""
    if os.geteuid() == 0:
        # As root it has no sandbox of its own.
        command.append("--no-sandbox")
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(profile))
    try:
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            *("-c", _TIED, "sh", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise StartError from error


async def _address(file: Path, process: asyncio.subprocess.Process, start_s: float) -> str:
    deadline = time.monotonic() + start_s
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError):
            port, path = file.read_text(encoding="ascii").split()
            return f"ws://127.0.0.1:{port}{path}"
        if process.returncode is not None or time.monotonic() > deadline:
            raise StartError
        await asyncio.sleep(_POLL_S)


async def _watch(group: int, memory_bytes: int, on_excess: Callable[[str], None]) -> None:
    while _memory(group) <= memory_bytes:
        await asyncio.sleep(_WATCH_S)
    on_excess("memory")


def _memory(group: int) -> int:
    """Return the bytes that belong to the processes of `group` alone; 0 on systems without /proc."""
    total = 0
    for each in _members(group):
        with contextlib.suppress(OSError):
            for line in (
                Path(f"/proc/{each}/status").read_text(encoding="ascii", errors="replace").splitlines()
            ):
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) << 10
    return total


def _members(group: int) -> list[int]:
    """Return the processes of `group` that run; none on systems without /proc."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name before it, in parentheses, may have spaces.
            state, _, number = (each / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(number) == group and state != "Z":
                found.append(int(each.name))
    return found


def _strays(profile: Path) -> list[int]:
    """Return the processes that name `profile`: handlers of crashes, which leave the group."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if bytes(profile) in (each / "cmdline").read_bytes():
                found.append(int(each.name))
    return found


async def _end(process: asyncio.subprocess.Process, profile: Path) -> None:
    """Kill the whole process group and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()
    deadline = time.monotonic() + _END_S
    while (left := {*_members(process.pid), *_strays(profile)}) and time.monotonic() < deadline:
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        await asyncio.sleep(_POLL_S)
