"""The whole local cloud for tests, started and stopped by the commands that a person uses."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from indexmill.client import Client
from indexmill.contracts.job import Job
from indexmill.platform.time import SystemClock
from local.backends.process import free_port
from local.stack.state import StateFolder
from tests.support import pooled_runs
from tests.support.repository import ROOT

T = TypeVar("T")

_COMMAND_S: Final = 90.0
_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For addresses without TLS: to load the certificate authorities takes longer than a request."""
_POLLS_S: Final = (0.05, 0.15)
"""Pauses between two looks: a tenth of what was waited, within these bounds: waiting costs little CPU."""


@dataclass(frozen=True, slots=True)
class RunningStack:
    """Addresses of a started stack, as `up --detach --json` prints them."""

    gateway: str
    control: str
    site: str
    membership: str
    embeddings: str
    """With its /v1."""
    database_url: str
    aws_endpoint: str
    invoke_endpoint: str
    api_key: str
    other_api_key: str
    ops_key: str
    region: str
    account_id: str
    parameters: dict[str, str]
    resources: dict[str, str]
    state: str
    pid: int
    ready_s: float

    def client(self) -> Client:
        """Return a client of the first caller."""
        return Client(self.gateway, self.api_key)

    def second_client(self) -> Client:
        """Return a client of another caller."""
        return Client(self.gateway, self.other_api_key)

    def http(self, key: str | None = None) -> httpx.Client:
        """Return plain HTTP to the gateway: with the first caller's key, with `key`, or with none for ""."""
        chosen = self.api_key if key is None else key
        headers = {"X-API-Key": chosen} if chosen else {}
        return httpx.Client(base_url=self.gateway, headers=headers, timeout=35.0, verify=_TLS)

    @property
    def second_site_port(self) -> int:
        """Port at which a test may serve pages of its own, on a stack with a second site."""
        return int(self.parameters["AllowedPrivateHosts"].rpartition(":")[2])

    def new_key(self, tier: str) -> str:
        """Return the key of a caller of the tier that has used nothing yet."""
        key, file = f"{tier}-{secrets.token_urlsafe(24)}", Path(self.state) / "membership-keys.json"
        file.write_text(
            json.dumps({**json.loads(file.read_text()), key: {"caller_type": "user", "tier": tier}})
        )
        return key

    def status(self) -> dict[str, Any]:
        """Return process ids and counters."""
        found: dict[str, Any] = httpx.get(f"{self.control}/status", timeout=10.0, verify=_TLS).json()
        return found

    def restarts(self, service: str) -> int:
        """Return how often a service was started again."""
        return int(self.status()["services"][service]["restarts"])

    def set_fault_mode(self, stand_in: str, **fault: Any) -> None:
        """Make the `membership` or `embeddings` stand-in misbehave, or well again."""
        base = str(getattr(self, stand_in)).removesuffix("/v1")
        httpx.post(f"{base}/control", json=fault, timeout=10.0, verify=_TLS).raise_for_status()

    def disturb(self, schedule: str, **wish: Any) -> None:
        """Make a schedule fire twice, late or not at all (`mode`, `times`, `delay`), or now (`fire`)."""
        httpx.post(
            f"{self.control}/schedules/{schedule}", json=wish, timeout=10.0, verify=_TLS
        ).raise_for_status()

    def stand_in_state(self, stand_in: str) -> dict[str, Any]:
        """Return what a stand-in counted."""
        base = str(getattr(self, stand_in)).removesuffix("/v1")
        found: dict[str, Any] = httpx.get(f"{base}/control", timeout=10.0, verify=_TLS).json()
        return found


def with_second_site(state: Path) -> str:
    """Keep a port for the site of a stack on `state`; return the parameter that allows a second one too."""
    ports = free_port(), free_port()
    state.mkdir()
    StateFolder(state).keep_port("site", ports[0])
    return "AllowedPrivateHosts=" + ",".join(f"127.0.0.1:{port}" for port in ports)


def indexmill(
    *arguments: str, timeout_s: float = _COMMAND_S, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line tool; its output is text, and it is no terminal."""
    return subprocess.run(
        [sys.executable, "-m", "local.cli.app", *arguments],
        cwd=ROOT,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(
    state: Path,
    *parameters: str,
    faults: str = "",
    site_root: Path | None = None,
    options: Sequence[str] = (),
) -> RunningStack:
    """Start a stack on `state`; `parameters` are of the form KEY=VALUE, `faults` what FAULTS is set to."""
    given = [part for parameter in parameters for part in ("--parameter", parameter)]
    given += ["--site-root", str(site_root)] if site_root else []
    started = indexmill(
        *("up", "--detach", "--json", "--state", str(state)), *given, *options, variables={"FAULTS": faults}
    )
    if started.returncode:
        raise RuntimeError(
            f"the stack did not start ({started.returncode}): {started.stdout}{started.stderr}"
        )
    info = json.loads(started.stdout)
    return RunningStack(**{each.name: info[each.name] for each in fields(RunningStack)})


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that others may enter, for a database server that runs as another user.

    Not one of pytest's: the next pytest of the same user closes the folder above them again.
    """
    with tempfile.TemporaryDirectory(prefix="indexmill-e2e-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve()


@contextlib.contextmanager
def running_stack(
    *parameters: str, faults: str = "", site_root: Path | None = None, options: Sequence[str] = ()
) -> Iterator[RunningStack]:
    """Run a stack on a folder of its own, which goes with it; `options` are those of `up`.

    It takes pages of `second_site_port` too.
    """
    postgres_port = free_port()
    with open_folder() as folder, pooled_runs.before(postgres_port) as chain:
        state = folder / "state"
        proxy = ("--postgres-port", str(postgres_port), "--database-proxy", chain.address) if chain else ()
        given = (with_second_site(state), *parameters)
        try:
            yield start(state, *given, faults=faults, site_root=site_root, options=(*proxy, *options))
        finally:
            indexmill("down", "--state", str(state))


def eventually(look: Callable[[], T | None], what: str, within_s: float = 30.0) -> T:
    """Return the first result of `look` that is not None or False; `what` is named when none comes."""
    began, (shortest, longest) = time.monotonic(), _POLLS_S
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        waited = time.monotonic() - began
        if waited > within_s:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(min(max(waited / 10, shortest), longest))


def drained(stack: RunningStack) -> None:
    """Return when no queue holds a message: those of ended jobs are processed and deleted."""
    counted = ("visible", "in_flight", "delayed")
    eventually(
        lambda: not any(queue[each] for queue in stack.status()["queues"].values() for each in counted),
        "every queue is empty",
    )


def between_ticks(stack: RunningStack, schedule: str, seconds: float = 8.0) -> None:
    """Return when a schedule does not fire by itself for so long: a test's own firings are alone."""

    def left() -> float:
        due = datetime.fromisoformat(stack.status()["schedules"][schedule]["next"])
        return (due - SystemClock().now()).total_seconds()

    eventually(lambda: left() > seconds, f"{schedule} has fired")


def index(client: Client, url: str, corpus: str, within_s: float = 40.0) -> Job:
    """Submit one URL and return its job at its end."""
    (job,) = client.wait([client.submit(url, corpus).job_id], within_s)
    return job
