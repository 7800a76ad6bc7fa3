"""The layers hold what the handlers need, for the machine they are meant for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.template_functions import TemplateFunction, template_functions
from tools.uv_environment import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LAYERS = {"BaseLayer": "base", "VectorsLayer": "vectors"}
LIMIT = 250_000_000  # bytes unzipped, a function's code and layers together
AARCH64 = 183  # e_machine of an ELF file
BYTECODE_3_13 = (3571).to_bytes(2, "little") + b"\r\n"
IMPORT = "import importlib, sys; assert callable(getattr(importlib.import_module(sys.argv[1]), sys.argv[2]))"


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


def functions() -> list[TemplateFunction]:
    return template_functions()


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.name)
def test_a_handler_imports_with_its_layers_alone(
    host_layers: dict[str, Path], function: TemplateFunction
) -> None:
    layers = [host_layers[name] for name in function.layers if name in host_layers]
    path = [function.folder, ROOT / "layers/indexmill/python", *(layer / "python" for layer in layers)]
    variables = {
        key: value.replace("/opt", str(host_layers["BaseLayer"]))
        for key, value in function.environment.items()
        # There is no AWS here to ask: a setting takes the secret itself too.
        if not key.endswith("_SECRET_ARN")
    } | {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        # Compiled once for all functions, and not into the layers.
        "PYTHONPYCACHEPREFIX": str(host_layers["BaseLayer"].parent / "bytecode"),
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
    }
    module, _, name = function.handler.partition(".")
    # -S: this environment's own packages stay out.
    command = [sys.executable, "-S", "-c", IMPORT, module, name]
    done = subprocess.run(
        command, env=variables, cwd=function.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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


def test_no_scripts_and_no_leftovers(lambda_layers: dict[str, Path]) -> None:
    for name, folder in lambda_layers.items():
        expected = {"python", "tokenizer"} if name == "BaseLayer" else {"python"}
        assert {path.name for path in folder.iterdir()} == expected
        assert not (folder / "python" / "bin").exists()
