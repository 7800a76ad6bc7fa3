"""PgBouncer for tests: the one on PATH, else the distribution's package, unpacked and never installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from local.backends.postgres_home import default_cache, private_folder, publish, server_account
from local.backends.postgres_template import SUPERUSER
from local.backends.process import free_port
from tests.support.processes import listening

_PACKAGE: Final = "pgbouncer"
_APT: Final = ("apt-get", "-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=10")
_APT_S: Final = 60
_START_S: Final = 10
_UNREACHABLE: Final = ("Could not resolve", "Could not connect", "Unable to connect", "Connection timed out")
_SETTINGS: Final = """\
[databases]
* = host=127.0.0.1 port={postgres_port} auth_user={superuser}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
auth_query = SELECT usename, '' FROM pg_catalog.pg_shadow WHERE usename = $1
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
ignore_startup_parameters =
server_login_retry = 0.2
query_wait_timeout = {queue_wait_s}
client_idle_timeout = {client_idle_s}
log_connections = 0
log_disconnections = 0
log_stats = 0
"""


class NoPgBouncer(RuntimeError):
    """Raised when this machine has no PgBouncer and no package source for it; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program, and the folder of libraries that the machine lacks."""

    path: Path
    libraries: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return the variables to start it with."""
        return {} if self.libraries is None else {"LD_LIBRARY_PATH": str(self.libraries)}


def search_path() -> str:
    """Return the folders in which programs are looked for; a daemon's is not on every user's PATH."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"


@cache
def program() -> Program:
    """Return PgBouncer's program, downloading and unpacking the package once for this machine.

    Raises NoPgBouncer without a package source; RuntimeError when there is one and it fails all the same.
    """
    path = search_path()
    if installed := shutil.which(_PACKAGE, path=path):
        return Program(Path(installed))
    if not (shutil.which("apt-get", path=path) and shutil.which("dpkg-deb", path=path)):
        raise NoPgBouncer("pgbouncer is not on PATH, and there is no apt-get to download its package with")
    target = default_cache(server_account()) / _PACKAGE
    if not target.exists():
        draft = Path(tempfile.mkdtemp(prefix=f"{_PACKAGE}-", dir=target.parent))
        try:
            draft.chmod(0o755)
            _unpack(draft)
            publish(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    (libraries,) = {each.parent for each in target.glob("usr/lib/**/lib*.so.*")} or {None}
    return Program(target / "usr" / "sbin" / _PACKAGE, libraries)


def _unpack(folder: Path) -> None:
    """Download the package and the libraries that are not installed, and unpack them into `folder`."""
    with tempfile.TemporaryDirectory(prefix=f"{_PACKAGE}-") as downloads:
        if _run(Path(downloads), *_APT, "download", _PACKAGE).returncode:
            # A fresh machine knows no packages yet; without the right to change that, nothing can be done.
            if os.geteuid() != 0:
                raise NoPgBouncer("apt-get cannot download pgbouncer, and only root can update its lists")
            _apt(Path(downloads), "update", "-o", "APT::Update::Error-Mode=any")
            _apt(Path(downloads), "download", _PACKAGE)
        (package,) = Path(downloads).glob("*.deb")
        depends = _run(Path(downloads), "dpkg-deb", "-f", package.name, "Depends").stdout
        names = [each.split()[0] for each in depends.split(",") if each.strip().startswith("lib")]
        if lacking := [each for each in names if _run(folder, "dpkg-query", "-W", each).returncode]:
            _apt(Path(downloads), "download", *lacking)
        for each in Path(downloads).glob("*.deb"):
            if (unpacked := _run(folder, "dpkg-deb", "-x", str(each), str(folder))).returncode:
                raise RuntimeError(f"{each.name} cannot be unpacked: {unpacked.stderr}")


def _apt(folder: Path, *arguments: str) -> None:
    done = _run(folder, *_APT, *arguments)
    if done.returncode == 0:
        return
    if any(sign in done.stderr for sign in _UNREACHABLE):
        raise NoPgBouncer("pgbouncer is not on PATH, and apt-get reaches no package source")
    raise RuntimeError(f"apt-get {' '.join(arguments)} failed: {done.stderr[-2000:]}")


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_APT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", _UNREACHABLE[-1])


@contextlib.contextmanager
def pgbouncer(
    postgres_port: int, *, pool_size: int, queue_wait_s: float, client_idle_s: float
) -> Iterator[int]:
    """Run PgBouncer in transaction mode before the server on `postgres_port`; yield its port.

    Every login of the server may connect; nothing connects to the server before a client does. The limits are
    those of `tests.support.pooler.chain`.
    """
    account, found, port = server_account(), program(), free_port()
    with tempfile.TemporaryDirectory(prefix="indexmill-pooler-") as state:
        folder = private_folder(account, Path(state), _PACKAGE)
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(
                postgres_port=postgres_port,
                port=port,
                superuser=SUPERUSER,
                folder=folder,
                pool_size=pool_size,
                queue_wait_s=queue_wait_s,
                client_idle_s=client_idle_s,
            )
        )
        (folder / "users.txt").write_text(f'"{SUPERUSER}" ""\n')
        account.take_ownership(folder)
        log_path = Path(state) / "pgbouncer.log"
        with log_path.open("wb") as log:
            running = subprocess.Popen(
                [found.path, settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=found.environment(),
                **account.popen_options(),  # type: ignore[call-overload]
            )

        try:
            deadline = time.monotonic() + _START_S
            while not listening([f"tcp://127.0.0.1:{port}"]):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    raise RuntimeError(f"PgBouncer ended ({running.wait(0.02)}): {log_path.read_text()}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"PgBouncer does not listen: {log_path.read_text()}")
            yield port
        finally:
            running.send_signal(signal.SIGINT)
            try:
                running.wait(2)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
            if folder.parent != Path(state):
                shutil.rmtree(folder, ignore_errors=True)
