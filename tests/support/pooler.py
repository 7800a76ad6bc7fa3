"""One chain for tests: a proxy that refuses as RDS Proxy does, PgBouncer in transaction mode, Postgres."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from local.backends.process import free_port
from tests.support.pgbouncer import pgbouncer, program
from tests.support.refusing_proxy import RefusingProxy
from tests.support.repository import ROOT

POOL_SIZE: Final = 4
"""Fewer than a stack has environments, so that they share."""
QUEUE_WAIT_S: Final = 60
"""Longer than any statement's limit: PgBouncer's default and RDS Proxy's are two minutes."""
_STOP_S: Final = 5


@dataclass(frozen=True, slots=True)
class Chain:
    """A running chain."""

    port: int
    report: Path

    @property
    def address(self) -> str:
        """Host and port that clients connect to."""
        return f"127.0.0.1:{self.port}"

    def url(self, url: str) -> str:
        """Return a connection string with the chain's address for the server's."""
        parts = urlsplit(url)
        account, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{account}{at}{self.address}"))

    def reported(self) -> list[dict[str, Any]]:
        """Return what was refused, and the statements that would have pinned a session, oldest first."""
        return [json.loads(line) for line in self.report.read_text().splitlines()]


@contextlib.contextmanager
def chain(
    postgres_port: int,
    *,
    pool_size: int = POOL_SIZE,
    queue_wait_s: float = QUEUE_WAIT_S,
    client_idle_s: float = 0,
) -> Iterator[Chain]:
    """Run a chain before the server on a loopback port, which need not run yet.

    Each login has `pool_size` server connections in each database; a client that waits longer than
    `queue_wait_s` for one is disconnected, and so is one that is idle for `client_idle_s` (0: no limit).
    Raises NoPgBouncer.
    """
    program()
    with tempfile.TemporaryDirectory(prefix="indexmill-chain-") as folder:
        made = Chain(free_port(), Path(folder) / "pinned.jsonl")
        made.report.touch()
        options = {
            "--port": made.port,
            "--postgres-port": postgres_port,
            "--report": made.report,
            "--pool-size": pool_size,
            "--queue-wait": queue_wait_s,
            "--client-idle": client_idle_s,
        }
        running = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.pooler",
                *(str(each) for pair in options.items() for each in pair),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == b"ready\n", "the chain did not start; its error is above"
            yield made
        finally:
            running.stdin.close()
            try:
                running.wait(_STOP_S)
            finally:
                running.kill()
                running.wait()
                running.stdout.close()


async def _serve(proxy: RefusingProxy, port: int) -> None:
    """Serve until standard input closes: the process that started the chain closes it, or has ended."""
    await proxy.start(port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


def main() -> None:
    """Run a chain as a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--postgres-port", type=int, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--pool-size", type=int, required=True)
    parser.add_argument("--queue-wait", type=float, required=True)
    parser.add_argument("--client-idle", type=float, required=True)
    chosen = parser.parse_args()
    with pgbouncer(
        chosen.postgres_port,
        pool_size=chosen.pool_size,
        queue_wait_s=chosen.queue_wait,
        client_idle_s=chosen.client_idle,
    ) as target:
        asyncio.run(_serve(RefusingProxy(target, chosen.report), chosen.port))


if __name__ == "__main__":
    main()
