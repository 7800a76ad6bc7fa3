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
_CLI: Final = (sys.executable, "-m", "local.cli.app")
_START_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class StartedStack:
    """A stack that is ready."""

    info: dict[str, Any]
    ready_s: float
    """From the start of the command until it returned."""


@contextlib.contextmanager
def stack(pages: Path, parameters: Sequence[str]) -> Iterator[StartedStack]:
    """Run a stack that serves `pages`; `parameters` are of the form KEY=VALUE."""
    with tempfile.TemporaryDirectory(prefix="indexmill-perf-", ignore_cleanup_errors=True) as folder:
        state = str(Path(folder) / "state")
        # The database server gives up root, and has to get to its data.
        Path(folder).chmod(0o755)
        given = [part for value in parameters for part in ("--parameter", value)]
        command = [*_CLI, "up", "--detach", "--json", "--state", state, "--site-root", str(pages), *given]
        began = time.monotonic()
        try:
            started = subprocess.run(
                command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_START_S, check=False
            )
            if started.returncode:
                raise SystemExit(f"the stack did not start:\n{started.stdout}{started.stderr}")
            yield StartedStack(json.loads(started.stdout), time.monotonic() - began)
        finally:
            subprocess.run([*_CLI, "down", "--state", state], cwd=REPOSITORY, timeout=60, check=False)


@contextlib.contextmanager
def embedding_stub() -> Iterator[list[str]]:
    """Run the fixed-time embedding endpoint; yields the parameters that make a stack use it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.perf.embedding_stub"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the stub has no pipes")
        port = process.stdout.readline().strip()
        try:
            yield [
                f"EmbeddingBaseUrl=http://127.0.0.1:{port}/v1",
                "EmbeddingModel=stub",
                f"EmbeddingDimension={DIMENSIONS}",
            ]
        finally:
            process.stdin.close()
            process.wait(10)
