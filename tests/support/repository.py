"""Files of this repository: those that git tracks or would track."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> list[Path]:
    """Return all files that git does not ignore; where git is not, all outside environments and caches."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        hidden = (".venv", ".git", ".aws-sam", "__pycache__", ".indexmill")
        found = [path for path in ROOT.rglob("*") if not any(part.startswith(hidden) for part in path.parts)]
    return sorted({path for path in found if path.is_file() and not path.is_symlink()})


def python_files() -> list[Path]:
    """Return the Python files of the repository."""
    return [path for path in files() if path.suffix == ".py"]


def text_files() -> dict[Path, str]:
    """Return every text file with its content."""
    texts = {}
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            texts[path] = data.decode("utf-8", "replace")
    return texts


def inside(path: Path) -> str:
    """Return a path as it is named in the repository, for messages."""
    return path.relative_to(ROOT).as_posix()
