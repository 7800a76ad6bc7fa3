"""The TypeScript example: its tools, as `make setup-all` installs them where there is npm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.support.browser import node
from tests.support.repository import ROOT

EXAMPLE: Final = ROOT / "examples" / "typescript"
_TOOLS: Final = ROOT / ".venv-node"


def missing() -> str | None:
    """Return what has to be installed first, if anything; with CI set, a machine with Node has all of it."""
    if node() is None:
        return "there is no node on the path"
    if os.environ.get("CI") or (_TOOLS / ".ready").is_file():
        return None
    return "the tools are not installed; run: make setup-all"


def tool(name: str, *arguments: str) -> None:
    """Run one of the tools in the example's folder."""
    command = [str(_TOOLS / "node_modules" / ".bin" / name), *arguments]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Node."""
    command = [node() or "node", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def compile_to(folder: Path) -> Path:
    """Check the types, and write the scripts into `folder`."""
    tool("tsc", "--outDir", str(folder))
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return folder
