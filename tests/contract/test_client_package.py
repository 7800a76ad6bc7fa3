"""The package of the Python client holds what the client imports and nothing else, and no function has it."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.version import VERSION
from tests.support import client_package
from tests.support.function_env import template
from tests.support.repository import ROOT

PORTIONS = (ROOT / "clients" / "python", ROOT / "layers" / "indexmill" / "python")
"""Folders of the namespace package indexmill."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_package.build(tmp_path_factory.mktemp("wheel"))


def file_of(module: str) -> Path | None:
    """Return the file of a module or package of the library; None for a name inside a module."""
    paths = [portion / module.replace(".", "/") for portion in PORTIONS]
    files = [each for path in paths for each in (path.with_suffix(".py"), path / "__init__.py")]
    return next((each for each in files if each.is_file()), None)


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports of the library, in functions and for its types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def imported(start: str) -> set[str]:
    """Return all files that `start` needs, with the packages that hold them."""
    found: set[Path] = set()
    wanted = [start]
    while wanted:
        module = wanted.pop()
        path = file_of(module) if module.startswith("indexmill") else None
        if path is None or path in found:
            continue
        found.add(path)
        wanted += [*imports(path), module.rpartition(".")[0]]
    names = (path.relative_to(ROOT).as_posix() for path in found)
    return {name.partition("/python/")[2] for name in names}


def test_the_wheel_has_what_the_client_imports_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == imported("indexmill.client") | {"indexmill/py.typed"}


def test_no_function_or_layer_has_the_client() -> None:
    """SAM copies these folders as they are, or builds a layer of packages from their requirements."""
    resources = template()["Resources"].values()
    properties = [each["Properties"] for each in resources]
    folders = {body[key] for body in properties for key in ("CodeUri", "ContentUri") if key in body}
    held = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    clients = {path.name for path in (ROOT / "clients/python/indexmill").iterdir()}
    assert "layers/indexmill/" in folders
    assert [path for path in held if {path.name, path.parent.name} & clients - {"__pycache__"}] == []


def test_the_wheel_has_the_version_and_the_licence_of_the_product(wheel: Path) -> None:
    assert wheel.name == f"indexmill_client-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_it_needs_httpx_and_pydantic_alone(wheel: Path, tmp_path: Path) -> None:
    folder = client_package.install(wheel, tmp_path)
    every = sorted(
        path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        for path in imported("indexmill.client")
    )
    program = "import importlib, json\nfor each in sys.argv[1:]: importlib.import_module(each)\n"
    program += "print(json.dumps([sys.modules[each].__file__ for each in sys.argv[1:]]))"
    assert all(path.startswith(str(folder)) for path in client_package.run(folder, program, *every))
