"""The layers hold what the handlers need, for the machine they are meant for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.repository import ROOT
from tests.support.secret_patterns import secrets
from tests.support.template_functions import TemplateFunction, template_functions
from tools.sbom import pinned_hashes, write_bills
from tools.uv_environment import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LAYERS = {"BaseLayer": "base", "VectorsLayer": "vectors"}
LIMIT = 250_000_000  # bytes unzipped, a function's code and layers together
AARCH64 = 183  # e_machine of an ELF file
BYTECODE_3_13 = (3571).to_bytes(2, "little") + b"\r\n"
LARGE = {"BaseLayer": ("boto3", "fastapi", "httpx", "psycopg", "pydantic"), "VectorsLayer": ("openai",)}
"""Packages of a layer that take long to import: once for all functions."""
IMPORTER = """
import importlib, json, os, sys, traceback

for name in sys.argv[1:]:
    importlib.import_module(name)

for line in sys.stdin:
    function = json.loads(line)
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.chdir(function["folder"])
            os.environ.update(function["environment"])
            sys.path[:0] = [function["folder"]]
            assert callable(getattr(importlib.import_module(function["module"]), function["attribute"]))
        except BaseException:
            os.write(write_end, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(write_end)
    with open(read_end) as answer:
        print(json.dumps(answer.read()), flush=True)
    os.waitpid(child, 0)
"""
Importer = Callable[[TemplateFunction], str]
"""Imports the handler of a function with its layers alone; returns the traceback, "" if there is none."""


def build(folder: Path, **variables: str) -> dict[str, Path]:
    """Build both layers as `sam build` does, each into a folder of its own."""
    built = {}
    for name, source in LAYERS.items():
        built[name] = folder / name
        given = environment() | variables | {"ARTIFACTS_DIR": str(built[name])}
        command = ["make", "--no-print-directory", f"build-{name}"]
        done = subprocess.run(
            command, cwd=ROOT / "layers" / source, env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def host_layers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    # A folder with a space in its name: nothing in the Makefiles may split it.
    return build(tmp_path_factory.mktemp("host") / "a build", PLATFORM="", BYTECODE="")


@pytest.fixture(scope="module")
def lambda_layers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("arm64"))


@pytest.fixture(scope="module")
def importer(host_layers: dict[str, Path]) -> Iterator[Importer]:
    processes: dict[tuple[str, ...], subprocess.Popen[str]] = {}

    def start(names: tuple[str, ...]) -> subprocess.Popen[str]:
        layers = [host_layers[name] / "python" for name in names if name in host_layers]
        variables = {
            "PYTHONPATH": os.pathsep.join(map(str, [*layers, ROOT / "layers/indexmill/python"])),
            # Compiled once for all functions, and not into the layers.
            "PYTHONPYCACHEPREFIX": str(host_layers["BaseLayer"].parent / "bytecode"),
        }
        # -S: this environment's own packages stay out.
        large = [package for name in names for package in LARGE.get(name, ())]
        command = [sys.executable, "-S", "-c", IMPORTER, *large]
        return subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def import_handler(function: TemplateFunction) -> str:
        if function.layers not in processes:
            processes[function.layers] = start(function.layers)
        process = processes[function.layers]
        module, _, attribute = function.handler.partition(".")
        environment = {
            key: value.replace("/opt", str(host_layers["BaseLayer"]))
            for key, value in function.environment.items()
            # There is no AWS here to ask: a setting takes the secret itself too.
            if not key.endswith("_SECRET_ARN")
        } | {
            "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
        }
        wanted = {"folder": str(function.folder), "module": module, "attribute": attribute}
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**wanted, "environment": environment}) + "\n")
        process.stdin.flush()
        return str(json.loads(process.stdout.readline() or '"the process ended"'))

    yield import_handler
    for process in processes.values():
        with process:
            process.communicate()


def functions() -> list[TemplateFunction]:
    return template_functions()


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.name)
def test_a_handler_imports_with_its_layers_alone(importer: Importer, function: TemplateFunction) -> None:
    assert importer(function) == ""


def test_a_handler_does_not_import_without_its_layers() -> None:
    command = [sys.executable, "-S", "-c", "import pydantic"]
    assert subprocess.run(command, env={}, capture_output=True, check=False).returncode == 1


def test_no_function_brings_packages_of_its_own() -> None:
    # `sam build` would then need the interpreter of the runtime.
    assert [each.name for each in functions() if (each.folder / "requirements.txt").exists()] == []


def contents(layers: dict[str, Path]) -> list[Path]:
    return [path for folder in layers.values() for path in folder.rglob("*") if path.is_file()]


def test_the_layers_fit(lambda_layers: dict[str, Path]) -> None:
    sizes = [path.stat().st_size for path in contents(lambda_layers)]
    assert len(sizes) > 1000
    assert sum(sizes) < LIMIT


def test_the_base_layer_has_the_tokenizer(lambda_layers: dict[str, Path]) -> None:
    assert (lambda_layers["BaseLayer"] / "tokenizer" / "wordllama-256.json").stat().st_size > 100_000


def test_every_library_is_for_the_lambda_machine(lambda_layers: dict[str, Path]) -> None:
    libraries = [path for path in contents(lambda_layers) if ".so" in path.suffixes]
    assert len(libraries) > 10
    machines = {path.name: int.from_bytes(path.read_bytes()[18:20], "little") for path in libraries}
    assert {name: machine for name, machine in machines.items() if machine != AARCH64} == {}
    foreign = [
        path.name for path in libraries if re.search(r"cpython-(?!313-aarch64)|\.cp(?!313)\d", path.name)
    ]
    assert foreign == []


def test_bytecode_is_of_the_runtime_or_not_there(lambda_layers: dict[str, Path]) -> None:
    compiled = [path for path in contents(lambda_layers) if path.suffix == ".pyc"]
    assert [path.name for path in compiled if path.read_bytes()[:4] != BYTECODE_3_13] == []


def test_no_scripts_and_no_other_files(lambda_layers: dict[str, Path]) -> None:
    for name, folder in lambda_layers.items():
        expected = {"python", "tokenizer"} if name == "BaseLayer" else {"python"}
        assert {path.name for path in folder.iterdir()} == expected
        assert not (folder / "python" / "bin").exists()


@pytest.fixture(scope="module")
def artefacts(lambda_layers: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a build, with one for each layer and function, as `sam build` copies it."""
    artefacts = tmp_path_factory.mktemp("build")
    for name, folder in lambda_layers.items():
        (artefacts / name).symlink_to(folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "layers/indexmill", artefacts / "CodeLayer", ignore=ignored)
    for function in functions():
        shutil.copytree(function.folder, artefacts / function.name, ignore=ignored)
    return artefacts


@pytest.fixture(scope="module")
def bills(artefacts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the bills of materials."""
    files = write_bills(artefacts, tmp_path_factory.mktemp("bills"))
    return {file.name.removesuffix(".cdx.json"): file for file in files}


@pytest.mark.shows("S29")
def test_every_artefact_has_a_valid_bill_of_materials(bills: dict[str, Path]) -> None:
    assert set(bills) == {*LAYERS, "CodeLayer", *(function.name for function in functions())}
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    for name, file in bills.items():
        assert validator.validate_str(file.read_text()) is None, name
        assert json.loads(file.read_text())["components"], name


@pytest.mark.shows("S29", "S31")
def test_a_bill_names_every_package_with_the_digests_it_was_checked_against(bills: dict[str, Path]) -> None:
    pinned = pinned_hashes(ROOT / "requirements")
    found = {}
    for name in LAYERS:
        for each in json.loads(bills[name].read_text())["components"]:
            if each["type"] == "library":
                found[each["name"], each["version"]] = [hash_["value"] for hash_ in each["properties"]]
    assert {package: {f"sha256:{digest}" for digest in pinned[package]} for package in found} == {
        package: set(digests) for package, digests in found.items()
    }
    assert all(found.values())
    assert len(found) > 30


@pytest.mark.shows("S31")
def test_a_package_with_another_digest_is_not_built_into_a_layer(tmp_path: Path) -> None:
    layer = Path(shutil.copytree(ROOT / "layers/vectors", tmp_path / "vectors"))
    requirements = layer / "requirements.txt"
    text = re.sub(r"--hash=sha256:[0-9a-f]{64}", f"--hash=sha256:{'0' * 64}", requirements.read_text())
    requirements.write_text(text)
    given = environment() | {"ARTIFACTS_DIR": str(tmp_path / "built")}
    command = ["make", "--no-print-directory", "build-VectorsLayer"]
    done = subprocess.run(command, cwd=layer, env=given, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


@pytest.mark.shows("S18")
def test_no_artefact_has_a_secret(artefacts: Path, bills: dict[str, Path]) -> None:
    """Packages are what their digests say: what a bill calls a file is ours."""
    own = [
        artefacts / name / each["name"]
        for name, file in bills.items()
        for each in json.loads(file.read_text())["components"]
        if each["type"] == "file"
    ]
    assert {path.suffix for path in own} >= {".py", ".sql", ".json"}
    texts = ((path.relative_to(artefacts).as_posix(), path.read_text("latin-1")) for path in own)
    assert secrets(texts) == []


@pytest.mark.shows("S39")
def test_no_artefact_has_what_is_for_tests(bills: dict[str, Path]) -> None:
    for name, file in bills.items():
        components = json.loads(file.read_text())["components"]
        packages = {each["name"] for each in components if each["type"] == "library"}
        assert packages & {"pytest", "hypothesis", "moto", "localstack-client"} == set(), name
        own = [each["name"] for each in components if each["type"] == "file"]
        strange = [path for path in own if re.search(r"(^|/)(tests?|local|faults|conftest)(/|\.py|$)", path)]
        assert strange == [], name
        if name not in LAYERS:
            # Certificates: the roots of the databases.
            assert {Path(path).suffix for path in own} <= {".py", ".sql", ".typed", ".pem"}, name


def test_the_same_artefact_has_the_same_bill(bills: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "build"
    shutil.copytree(ROOT / "sql", folder / "Migrator", ignore=shutil.ignore_patterns("__pycache__"))
    [again] = write_bills(folder, tmp_path / "bills")
    assert again.read_text() == bills["Migrator"].read_text()
