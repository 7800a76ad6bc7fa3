"""The architecture is kept by import-linter, and import-linter would notice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tools.reading import importers

LIBRARY = Path("layers/indexmill/python/indexmill")
CLIENT = Path("clients/python/indexmill")
LAYERS = "Services are independent"
ORCHESTRATOR = "Layers of the Orchestrator"
TECHNOLOGY = "Only adapters"
TWINS = "Production imports neither"
FUNCTIONS = "A function imports only"
ROUTES = "Routes do not import the wiring"
EMULATOR = "The emulator imports nothing"
LOCAL_LAYERS = "Layers of the local cloud"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the tree at `root` as `make lint` does."""
    # -S: the installed project is part of the same namespace packages.
    run = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-S", "-c", run, "--no-cache"]
    folders = [root / LIBRARY.parent, root / CLIENT.parent, root, sysconfig.get_path("purelib")]
    paths = os.pathsep.join(map(str, folders))
    return subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.shows("R023")
def test_the_contracts_are_kept() -> None:
    answer = lint_imports(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


WRONG = [
    (LIBRARY / "scraper/scrape.py", "indexmill.orchestrator.submission.submit", LAYERS),
    (LIBRARY / "platform/progress.py", "indexmill.chunking.split", LAYERS),
    (LIBRARY / "contracts/job.py", "indexmill.platform.progress", LAYERS),
    (LIBRARY / "orchestrator/store/crawls.py", "indexmill.orchestrator.crawling.follow", ORCHESTRATOR),
    (LIBRARY / "orchestrator/admission/dependencies.py", "indexmill.orchestrator.queries.jobs", ORCHESTRATOR),
    (LIBRARY / "orchestrator/results/apply.py", "indexmill.orchestrator.submission.submit", ORCHESTRATOR),
    (LIBRARY / "chunking/worker.py", "boto3", TECHNOLOGY),
    (LIBRARY / "orchestrator/submission/submit.py", "psycopg", TECHNOLOGY),
    (LIBRARY / "embedding/wiring.py", "tests.twins.embedder", TWINS),
    (LIBRARY / "access/authorize.py", "local.stack.state", TWINS),
    (LIBRARY / "platform/progress.py", "indexmill.client.transport", TWINS),
    (Path("local/compute/host.py"), "indexmill.contracts.job", EMULATOR),
    (Path("local/triggers/sqs.py"), "local.stack.state", LOCAL_LAYERS),
    (LIBRARY / "scraper/api.py", "indexmill.scraper.wiring", ROUTES),
    (Path("functions/scraper/added.py"), "indexmill.scraper.enqueue", FUNCTIONS),
    (Path("functions/scraper/added.py"), "indexmill.embedding.wiring", FUNCTIONS),
    (Path("functions/authorizer/added.py"), "tests.twins.clock", FUNCTIONS),
]
"""A module, what it imports in a copy of the tree, and the contract that this breaks."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what import-linter says of a tree with every wrong import: one run takes seconds."""
    tree = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in (LIBRARY, CLIENT, "local", "functions"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for module, imported, _ in WRONG:
        with (tree / module).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")
    answer = lint_imports(tree)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    return answer.stdout


@pytest.mark.parametrize(("module", "imported", "contract"), WRONG)
def test_a_wrong_import_breaks_its_contract(report: str, module: Path, imported: str, contract: str) -> None:
    # A title is a line above one of dashes.
    sections = re.split(r"^(?=.+\n-+\n)", report.partition("Broken contracts")[2], flags=re.MULTILINE)
    (section,) = (each for each in sections if each.startswith(contract))
    importer = ".".join(module.with_suffix("").parts).removeprefix("layers.indexmill.python.")
    # What is not in the tree is named by its root.
    named = imported.partition(".")[0] if imported.startswith("tests.") else imported
    assert f"{importer} -> {named} (" in " ".join(section.split())


def test_no_rooms_of_the_orchestrator_form_a_cycle() -> None:
    """Imports for types and those within functions count too."""
    rooms: dict[str, set[str]] = {}
    inside = re.compile(r"indexmill\.orchestrator\.(\w+)")
    for imported, users in importers(ROOT).items():
        for user in users:
            if (above := inside.match(user)) and (below := inside.match(imported)) and above[1] != below[1]:
                rooms.setdefault(above[1], set()).add(below[1])
    *_, last = TopologicalSorter(rooms).static_order()
    assert last == "wiring"


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
