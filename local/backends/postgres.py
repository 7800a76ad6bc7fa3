"""A Postgres 18 with pgvector from a wheel, on a loopback port, with its data in the state folder.

>>> server = EmbeddedPostgres(Path(".local"))
>>> url = server.start()
>>> server.stop()

Calls block for a fraction of a second: from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from local.backends import postgres_template
from local.backends.postgres_home import (
    PostgresUnavailable,
    default_cache,
    find_programs,
    private_folder,
    server_account,
)
from local.backends.process import free_port

_SINCE: Mapping[str, int] = {"io_method": 18}
"""Settings that earlier major versions do not know."""
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "maintenance_work_mem": "128MB",
    "max_wal_size": "1GB",
    "min_wal_size": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "15s",
    "autovacuum_max_workers": "2",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "io_method": "sync",
    "huge_pages": "off",
    "log_min_messages": "warning",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Server settings: few processes and little memory. A commit is written before it is acknowledged, so an
accepted job survives a killed server; it is not flushed to disk, so a power failure may lose the laptop's
data.
"""

_RETRY_S = 0.1
"""After a crash the dead server's last processes need a moment to release its shared memory."""

_READY_LINE = 7
"""Content of the line of postmaster.pid that reads "ready" once connections are accepted."""


class EmbeddedPostgres:
    """One server on one data folder; `start` after `stop`, or after a crash, continues with the same data.

    Args:
        state_dir: Where the data and the log go (the data goes elsewhere when the server's account cannot
            enter it; see `data_dir`).
        port: The loopback port; 0 takes a free one at each first start and keeps it for restarts.
        settings: Server settings on top of SETTINGS.
        bin_dir: A folder with `initdb` and `postgres` in place of the wheel's.
        cache_dir: Where the initialised template is kept between state folders.
        on_exit: Called from a thread with the exit status when the server ends without `stop`.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        bin_dir: Path | None = None,
        cache_dir: Path | None = None,
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        self._account = server_account()
        self._cache = cache_dir or default_cache(self._account)
        self._programs = find_programs(self._account, self._cache, bin_dir)
        self._settings = {**SETTINGS, **(settings or {})}
        self._on_exit = on_exit
        self._port = port
        self._chooses_port = port == 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._log_start = 0
        self.data_dir = private_folder(self._account, state_dir.resolve(), "postgres")
        self.log_path = state_dir.resolve() / "postgres.log"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def url(self) -> str:
        """Return the URL of the `postgres` database, as the superuser."""
        return f"postgresql://{postgres_template.SUPERUSER}@127.0.0.1:{self._port}/postgres"

    def start(self, timeout_s: float = 30.0) -> str:
        """Start the server, initialising the data folder when it is empty, and return its URL.

        A server that an earlier process left running on the same data is stopped first.
        Raises PostgresUnavailable, with the end of its log, when it does not get ready.
        """
        if self.pid is not None:
            return self.url
        _stop_orphan(self.data_dir, timeout_s)
        if not (self.data_dir / "PG_VERSION").exists():
            postgres_template.fill(self.data_dir, self._programs, self._account, self._cache)
        deadline = time.monotonic() + timeout_s
        while not self._try_start(deadline):
            time.sleep(_RETRY_S)
        self._stopping = False
        threading.Thread(
            target=self._watch, args=(self._process,), name="postgres-watch", daemon=True
        ).start()
        return self.url

    def stop(self, timeout_s: float = 20.0) -> None:
        """Stop the server: open transactions are rolled back and a checkpoint is written."""
        process = self._process
        if process is None:
            return
        self._stopping = True
        for step in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if process.poll() is not None:
                break
            process.send_signal(step)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
        self._process = None

    def delete(self) -> None:
        """Stop the server and delete its data; a folder that is no data folder stays."""
        self.stop()
        if (self.data_dir / "PG_VERSION").is_file():
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        major = int((self.data_dir / "PG_VERSION").read_text())
        options = [
            f"--{name}={value}" for name, value in self._settings.items() if major >= _SINCE.get(name, 0)
        ]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [self._programs / "postgres", "-D", self.data_dir, "-p", str(self._port), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._programs,
                env={"PATH": os.environ.get("PATH", ""), "TZ": "UTC"},
                start_new_session=True,
                **self._account.popen_options(),  # type: ignore[call-overload]
            )
        return process

    def _try_start(self, deadline: float) -> bool:
        """Start the program once. Return False after a transient failure; raises for any other."""
        self._port = self._port or free_port()
        self._process = self._spawn()
        try:
            self._wait_ready(self._process, deadline)
        except PostgresUnavailable as problem:
            if time.monotonic() > deadline:
                raise
            if "could not bind" in str(problem) and self._chooses_port:
                self._port = 0
            elif "pre-existing shared memory" not in str(problem):
                raise
            return False
        return True

    def _wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while time.monotonic() < deadline and process.poll() is None:
            lines = _postmaster_lines(self.data_dir)
            if len(lines) > _READY_LINE and lines[0] == str(process.pid) and lines[_READY_LINE] == "ready":
                return
            time.sleep(0.005)
        self.stop()
        ending = self.log_path.read_bytes()[self._log_start :][-2000:].decode(errors="replace")
        raise PostgresUnavailable(f"Postgres did not get ready on port {self._port}:\n{ending}")

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        if not self._stopping and self._on_exit is not None:
            self._on_exit(status)


def create_database(url: str, name: str, template: str | None = None) -> str:
    """Create the database `name` on the server at `url` and return its URL.

    With `template` it is a copy of that database, which must have no connections; a file copy is the fast
    way for the small databases of tests.
    """
    from psycopg import connect, sql

    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
        sql.Identifier(name), sql.Identifier(template or "template1")
    )
    with connect(url, autocommit=True) as connection:
        connection.execute(statement)
    return urlunsplit(urlsplit(url)._replace(path="/" + quote(name, safe="")))


def drop_database(url: str, name: str) -> None:
    """Drop the database `name` and end its sessions; nothing happens when there is none."""
    from psycopg import connect, sql

    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with connect(url, autocommit=True) as connection:
        connection.execute(statement)


def _postmaster_lines(data_dir: Path) -> list[str]:
    try:
        return [line.strip() for line in (data_dir / "postmaster.pid").read_text().splitlines()]
    except OSError:
        return []


def _stop_orphan(data_dir: Path, timeout_s: float) -> None:
    """Stop a server that still runs on `data_dir`, once its process is verified to be that server."""
    lines = _postmaster_lines(data_dir)
    if not lines or not lines[0].isdigit():
        return
    pid = int(lines[0])
    if str(data_dir) not in _command_line(pid):
        return
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
        while time.monotonic() < deadline and str(data_dir) in _command_line(pid):
            time.sleep(0.01)


def _command_line(pid: int) -> str:
    listing = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        try:
            return listing.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True, check=False)  # noqa: S607
    return shown.stdout
