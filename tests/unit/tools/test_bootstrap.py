"""Environments are made by any user, kept when they work, and nothing else is ever cleared."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tools import bootstrap


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_working_environment_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "an environment"
    venv.EnvBuilder(symlinks=True).create(folder)
    (folder / "kept").touch()
    assert bootstrap.make_environment(folder) == folder / "bin" / "python"
    assert (folder / "kept").exists()


@pytest.mark.long  # pip takes seconds to install, and `make setup` does this for each test run
def test_a_broken_environment_is_made_again_and_a_working_one_kept(tmp_path: Path) -> None:
    folder = tmp_path / "an environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    (folder / "left").touch()
    broken = script(folder / "bin" / "python", "exit 1")
    python = bootstrap.make_environment(folder)
    assert (python, (folder / "left").exists()) == (broken, False)
    (folder / "kept").touch()
    assert bootstrap.make_environment(folder) == python
    assert (folder / "kept").exists()
    answer = subprocess.run(
        [str(python), "-m", "pip", "--version"], capture_output=True, text=True, check=True
    )
    assert str(folder) in answer.stdout


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("text", encoding="utf-8")
    with pytest.raises(SystemExit, match="no virtual environment"):
        bootstrap.make_environment(tmp_path)
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "text"


def test_pip_takes_over_when_uv_fails(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    calls = tmp_path / "calls"
    uv = script(tmp_path / "bin" / "uv", f'echo "uv $UV_SYSTEM_CERTS $*" >> "{calls}"; exit 2')
    python = script(tmp_path / "bin" / "python", f'echo "python $*" >> "{calls}"')
    bootstrap.install(python, uv, (["sync", "files"], ["install", "files"]))
    assert calls.read_text(encoding="utf-8").splitlines() == [
        f"uv  pip sync files --python {python}",
        f"uv 1 pip sync files --python {python}",
        "python -m pip install files",
    ]


def test_a_failure_of_both_ends_with_what_they_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = script(tmp_path / "python", "echo no matching hash; exit 1")
    with pytest.raises(SystemExit, match="could not be made"):
        bootstrap.install(python, tmp_path / "uv", (["sync"], ["install"]))
    assert "no matching hash" in capfd.readouterr().err


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )


def test_make_explains_every_target_for_people() -> None:
    text = make("help").stdout
    targets = ["setup", "up", "demo", "test", "lint", "fmt", "build", "check", "lock", "generate", "clean"]
    assert [name for name in targets if f"make {name} " not in text] == []


@pytest.mark.parametrize("python", ["", "no-such-python", "an older python"])
def test_make_says_what_is_missing(tmp_path: Path, python: str) -> None:
    # Of the tree only what `make setup` looks at, so that no real environment can be touched.
    for name in ("Makefile", "pyproject.toml", "requirements", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    if python.startswith("an "):
        python = str(script(tmp_path / python, "exit 1"))
    done = make(f"PYTHON={python}", "setup", cwd=tmp_path)
    assert done.returncode != 0
    assert "3.11" in done.stderr
    assert "python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    with pytest.raises(SystemExit, match=r"3\.11"):
        bootstrap.main([str(tmp_path / "new"), "none.txt"])
