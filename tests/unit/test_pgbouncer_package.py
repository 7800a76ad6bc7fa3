"""PgBouncer's package: where none can be had runs are skipped, and any other failure fails them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import pgbouncer
from tests.support.pgbouncer import NoPgBouncer, program


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder in which programs are looked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(pgbouncer, "search_path", lambda: str(folder))
    monkeypatch.setattr(pgbouncer, "default_cache", lambda account: tmp_path)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_an_installed_one_is_used(programs: Path) -> None:
    script(programs, "pgbouncer", "exit 0")
    found = program.__wrapped__()
    assert (found.path, found.environment()) == (programs / "pgbouncer", {})


@pytest.mark.usefixtures("programs")
def test_without_apt_there_is_none() -> None:
    with pytest.raises(NoPgBouncer, match="there is no apt-get"):
        program.__wrapped__()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root updates package lists")
def test_a_source_that_is_not_reached_is_none(programs: Path) -> None:
    script(programs, "dpkg-deb", "exit 0")
    script(programs, "apt-get", "echo \"E: Could not resolve 'packages.invalid'\" >&2; exit 100")
    with pytest.raises(NoPgBouncer, match="reaches no package source"):
        program.__wrapped__()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root updates package lists")
def test_a_source_that_is_reached_must_have_it(programs: Path) -> None:
    script(programs, "dpkg-deb", "exit 0")
    script(programs, "apt-get", "echo 'E: Unable to locate package pgbouncer' >&2; exit 100")
    with pytest.raises(RuntimeError, match="Unable to locate package") as failed:
        program.__wrapped__()
    assert not isinstance(failed.value, NoPgBouncer)
