"""The distribution of the Python client, built and unpacked as a person would install it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from tests.support.repository import ROOT

PROJECT: Final = ROOT / "clients" / "python"


def build(folder: Path) -> Path:
    """Build the wheel into `folder`, with nothing fetched, and return it."""
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *offline, str(PROJECT), "--wheel-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Unpack the wheel into `folder`, beside links to what its requirements bring and to nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    wanted = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    seen: set[str] = set()
    while wanted:
        requirement = Requirement(wanted.pop())
        skipped = requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
        if requirement.name in seen or skipped:
            continue
        seen.add(requirement.name)
        found = distribution(requirement.name)
        wanted += found.requires or []
        for top in {
            file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (folder / top).exists():
                (folder / top).symlink_to(str(found.locate_file(top)))
    return folder


def run(folder: Path, program: str, *arguments: str) -> Any:
    """Run `program` with the standard library and `folder` alone; return what it prints as JSON."""
    start = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"
    command = [sys.executable, "-I", "-S", "-B", "-c", start, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
