"""Initialised data folder, made once and then copied: a new database server costs a file copy."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from local.backends.postgres_home import Account, PostgresUnavailable, publish

SUPERUSER = "indexmill"

_INITDB_OPTIONS = (
    f"--username={SUPERUSER}",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--wal-segsize=4",
    "--no-sync",
    "--no-instructions",
)
"""Small log segments keep the copy small. The server trusts its clients: it listens on the loopback address
only, and contains only development data.
"""
_SINCE = {17: "--locale-provider=builtin", 18: "--no-data-checksums"}
"""Options that earlier major versions do not know; they have neither a built-in locale nor checksums."""


def fill(data_dir: Path, programs: Path, account: Account, cache: Path) -> None:
    """Initialise an empty `data_dir` that `account` owns.

    Raises PostgresUnavailable when `initdb` fails.
    """
    template = _template(programs, account, cache)
    shutil.copytree(template, data_dir, dirs_exist_ok=True, copy_function=shutil.copyfile)
    account.take_ownership(data_dir)
    data_dir.chmod(0o700)


def _template(programs: Path, account: Account, cache: Path) -> Path:
    binary = (programs / "postgres").stat()
    identity = repr((binary.st_size, binary.st_mtime_ns, _INITDB_OPTIONS, _SINCE, account.uid))
    target = cache / f"postgres-template-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    draft = Path(tempfile.mkdtemp(prefix="template-", dir=cache))
    if account.switch:
        os.chown(draft, account.uid, account.gid)
    found = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=False)
    major = int(next(iter(re.findall(r"\d+", found.stdout)), 18))
    since = [option for version, option in _SINCE.items() if major >= version]
    done = subprocess.run(
        [programs / "initdb", "-D", draft, *_INITDB_OPTIONS, *since],
        capture_output=True,
        text=True,
        check=False,
        cwd=programs,
        env={"PATH": os.environ.get("PATH", ""), "TZ": "UTC"},
        **account.popen_options(),  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        raise PostgresUnavailable(f"initdb failed: {done.stderr.strip()[-2000:]}")
    return publish(draft, target)
