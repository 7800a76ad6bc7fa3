"""Starts the stack as a user would, on a state folder of its own, and always stops it again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.perf.embedding_stub import DIMENSIONS

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_START_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class StartedStack:
    """A stack that is ready."""

    info: dict[str, Any]
    ready_s: float
    """From the start of the command until it returned."""


@dataclass(frozen=True, slots=True)
class Outside:
    """A process that replaces something outside of the stack; `said` is what it printed when it was ready."""

    pid: int
    said: dict[str, Any]

    @property
    def address(self) -> str:
        """Its HTTP address."""
        return f"127.0.0.1:{self.said['port']}"


@contextlib.contextmanager
def stack(parameters: Sequence[str], *options: str, root: Path = REPOSITORY) -> Iterator[StartedStack]:
    """Run a stack of a checkout; `parameters` are of the form KEY=VALUE, `options` of `indexmill up`."""
    cli = (sys.executable if root == REPOSITORY else str(root / ".venv/bin/python"), "-m", "local.cli.app")
    with tempfile.TemporaryDirectory(prefix="indexmill-perf-", ignore_cleanup_errors=True) as folder:
        state = str(Path(folder) / "state")
        # The database server gives up root, and has to get to its data.
        Path(folder).chmod(0o755)
        given = [part for value in parameters for part in ("--parameter", value)]
        command = [*cli, "up", "--detach", "--json", "--state", state, *options, *given]
        began = time.monotonic()
        try:
            started = subprocess.run(
                command, cwd=root, capture_output=True, text=True, timeout=_START_S, check=False
            )
            if started.returncode:
                raise SystemExit(f"the stack did not start:\n{started.stdout}{started.stderr}")
            yield StartedStack(json.loads(started.stdout), time.monotonic() - began)
        finally:
            subprocess.run([*cli, "down", "--state", state], cwd=root, timeout=60, check=False)


@contextlib.contextmanager
def outside(module: str, *options: str) -> Iterator[Outside]:
    """Run `module` until the end of the block; it prints a line of JSON with its port when it is ready."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *options],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError(f"{module} has no pipes")
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{module} ended at its start")
        try:
            yield Outside(process.pid, json.loads(line))
        finally:
            process.stdin.close()
            process.wait(10)


def page_server(pages: Path | None) -> contextlib.AbstractContextManager[Outside]:
    """Run the server of pages that differ from round to round: of a folder, or of the built-in site."""
    return outside("tests.perf.page_server", *(() if pages is None else ("--pages", str(pages))))


def page_parameters(server: Outside) -> list[str]:
    """Return the parameters that let a stack fetch from `server`."""
    return [f"AllowedPrivateHosts={server.address}"]


def embedding_stub(per_input_ms: float = 0.0) -> contextlib.AbstractContextManager[Outside]:
    """Run the embedding endpoint, which takes 5 ms, and `per_input_ms` for each input."""
    return outside("tests.perf.embedding_stub", str(per_input_ms))


def embedding_parameters(stub: Outside) -> list[str]:
    """Return the parameters that make a stack use `stub`."""
    return [
        f"EmbeddingBaseUrl=http://{stub.address}/v1",
        "EmbeddingModel=stub",
        f"EmbeddingDimension={DIMENSIONS}",
    ]
