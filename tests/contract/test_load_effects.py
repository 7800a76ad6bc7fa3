"""Modules open and read nothing while they are loaded: environments are forked with them in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.function_env import ROOT


def effects(folder: Path, package: str) -> list[str]:
    """Return what loading the package does, as `tests.support.load_effects` prints it."""
    command = [sys.executable, "-m", "tests.support.load_effects", str(folder), package]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in answer.stdout.splitlines() if line]


def test_no_module_reads_the_environment_or_opens_anything_while_it_is_loaded() -> None:
    assert effects(ROOT / "layers" / "indexmill" / "python", "indexmill") == []


@pytest.mark.parametrize(
    ("code", "effect"),
    [
        ("import os\nREGION = os.environ.get('AWS_REGION')\n", "reads AWS_REGION"),
        ("import os\nREGION = os.getenv('AWS_REGION')\n", "reads AWS_REGION"),
        ("def read():\n    return open('/etc/hostname').read()\nNAME = read()\n", "opens /etc/hostname"),
        ("import socket\nCONNECTION = socket.socket()\n", "socket.__new__"),
        ("import threading\nthreading.Thread(target=int).start()\n", "starts a thread"),
    ],
    ids=("environ", "getenv", "file", "socket", "thread"),
)
def test_a_module_that_does_is_found(tmp_path: Path, code: str, effect: str) -> None:
    (tmp_path / "mill").mkdir()
    (tmp_path / "mill" / "__init__.py").touch()
    (tmp_path / "mill" / "part.py").write_text(code)
    assert effects(tmp_path, "mill") == [f"mill.part {effect}"]
