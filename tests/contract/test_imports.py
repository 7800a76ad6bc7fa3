"""The architecture is kept by import-linter, and import-linter would notice."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

LIBRARY = Path("layers/indexmill/python/indexmill")
LAYERS = "Services are independent"
TECHNOLOGY = "Only adapters"
TWINS = "Production imports neither"
EMULATOR = "The emulator imports nothing"
LOCAL_LAYERS = "Layers of the local cloud"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the tree at `root` as `make lint` does."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    paths = os.pathsep.join([str(root / LIBRARY.parent), str(root)])
    return subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def broken(answer: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.strip() for line in answer.stdout.splitlines() if " BROKEN" in line]


def test_the_contracts_are_kept() -> None:
    answer = lint_imports(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("scraper/scrape.py", "import indexmill.orchestrator.submit", LAYERS),
        ("platform/ids.py", "import indexmill.chunking.split", LAYERS),
        ("contracts/job.py", "import indexmill.platform.ids", LAYERS),
        ("chunking/chunk.py", "import boto3", TECHNOLOGY),
        ("orchestrator/submit.py", "import psycopg", TECHNOLOGY),
        ("embedding/wiring.py", "import indexmill.testing.embedder", TWINS),
        ("access/authorize.py", "import local.stack.state", TWINS),
        ("local/compute/host.py", "import indexmill.contracts.job", EMULATOR),
        ("local/triggers/sqs.py", "import local.stack.state", LOCAL_LAYERS),
    ],
)
def test_a_wrong_import_breaks_its_contract(tmp_path: Path, module: str, line: str, contract: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / LIBRARY, tmp_path / LIBRARY, ignore=ignored)
    shutil.copytree(ROOT / "local", tmp_path / "local", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changed = tmp_path / (module if module.startswith("local/") else LIBRARY / module)
    changed.write_text(changed.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    answer = lint_imports(tmp_path)
    assert any(name.startswith(contract) for name in broken(answer)), answer.stdout + answer.stderr


def entry_points() -> list[Path]:
    return sorted((ROOT / "functions").glob("*/*.py"))


@pytest.mark.parametrize("path", entry_points(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_entry_point_imports_its_own_service_only(path: Path) -> None:
    service = {"authorizer": "access"}.get(path.parent.name, path.parent.name)
    own = (f"indexmill.{service}", "indexmill.platform", "indexmill.contracts")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imports += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    wrong = [name for name in imports if name.startswith(("indexmill", "local")) and not name.startswith(own)]
    assert wrong == []
