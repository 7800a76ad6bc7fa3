"""The architecture is kept by import-linter, and import-linter would notice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.repository import ROOT

LIBRARY = Path("layers/indexmill/python/indexmill")
LAYERS = "Services are independent"
TECHNOLOGY = "Only adapters"
TWINS = "Production imports neither"
FUNCTIONS = "A function imports only"
ROUTES = "Routes do not import the wiring"
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


@pytest.mark.shows("R023")
def test_the_contracts_are_kept() -> None:
    answer = lint_imports(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        (LIBRARY / "scraper/scrape.py", "import indexmill.orchestrator.submission.submit", LAYERS),
        (LIBRARY / "platform/progress.py", "import indexmill.chunking.split", LAYERS),
        (LIBRARY / "contracts/job.py", "import indexmill.platform.progress", LAYERS),
        (LIBRARY / "chunking/chunk.py", "import boto3", TECHNOLOGY),
        (LIBRARY / "orchestrator/submission/submit.py", "import psycopg", TECHNOLOGY),
        (LIBRARY / "embedding/wiring.py", "import tests.twins.embedder", TWINS),
        (LIBRARY / "access/authorize.py", "import local.stack.state", TWINS),
        (Path("local/compute/host.py"), "import indexmill.contracts.job", EMULATOR),
        (Path("local/triggers/sqs.py"), "import local.stack.state", LOCAL_LAYERS),
        (LIBRARY / "scraper/api.py", "import indexmill.scraper.wiring", ROUTES),
        (Path("functions/scraper/added.py"), "import indexmill.scraper.enqueue", FUNCTIONS),
        (Path("functions/scraper/added.py"), "import indexmill.embedding.wiring", FUNCTIONS),
        (Path("functions/authorizer/added.py"), "import tests.twins.clock", FUNCTIONS),
    ],
)
def test_a_wrong_import_breaks_its_contract(tmp_path: Path, module: Path, line: str, contract: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / LIBRARY, tmp_path / LIBRARY, ignore=ignored)
    shutil.copytree(ROOT / "local", tmp_path / "local", ignore=ignored)
    shutil.copytree(ROOT / "functions", tmp_path / "functions", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changed = tmp_path / module
    # New files in functions/: the folder of the installed project is part of the same namespace package.
    text = changed.read_text(encoding="utf-8") if changed.exists() else ""
    changed.write_text(text + f"\n{line}\n", encoding="utf-8")
    answer = lint_imports(tmp_path)
    assert any(name.startswith(contract) for name in broken(answer)), answer.stdout + answer.stderr


def test_every_service_is_in_the_lists_of_the_contracts() -> None:
    """A service that a list leaves out breaks no contract, whatever it imports."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers, production, functions = (
        next(each for each in settings["contracts"] if each["name"].startswith(name))
        for name in (LAYERS, TWINS, FUNCTIONS)
    )
    services = {path.parent.name for path in (ROOT / LIBRARY).glob("*/wiring.py")}
    packages = {f"indexmill.{path.parent.name}" for path in (ROOT / LIBRARY).glob("*/__init__.py")}
    entries = {f"functions.{path.parent.name}" for path in (ROOT / "functions").glob("*/*.py")}
    assert services <= set(re.findall(r"\w+", layers["layers"][0]))
    assert packages <= set(production["source_modules"])
    assert {f"indexmill.{name}" for name in services} <= set(functions["forbidden_modules"])
    assert entries == {line.partition(".*")[0] for line in functions["ignore_imports"]}


@pytest.mark.parametrize(
    ("started", "unused"),
    [
        ("indexmill.scraper.worker, indexmill.scraper.api", "selectolax"),
        ("indexmill.scraper.wiring, indexmill.chunking.wiring", "pybreaker"),
        pytest.param(
            "indexmill.chunking.wiring, indexmill.chunking.worker, indexmill.chunking.api",
            "psycopg",
            marks=pytest.mark.shows("R018"),
        ),
    ],
)
def test_no_cold_start_loads_what_it_may_never_use(started: str, unused: str) -> None:
    check = f"import sys, {started}; print('{unused}' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_benchmark_can_be_imported() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "tests/perf").rglob("*.py")]
    names = [".".join(file.with_suffix("").parts) for file in files]
    load = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", load, *names], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
