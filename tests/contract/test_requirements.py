"""The tested packages are the shipped ones: one version in the layers, the sets and this environment."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT

FOLDER = ROOT / "requirements"
PRODUCT = ("base", "vectors", "local", "dev")
HASHED = [
    *PRODUCT,
    "tools-uv",
    "tools-sam",
    "tools-ministack",
    "tools-audit",
    "tools-pg16",
    "tools-schemathesis",
    "tools-extraction",
]
# A line is a comment, a pin, or a hash of the pin above it: no option, no address, no folder.
PIN = re.compile(r"(?P<pin>[a-z0-9][\w.\[\],-]*==[\w.+!-]+(?: ; [^\\]+?)?)(?: \\)?")
HASH = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}(?: \\)?")


def pins(path: Path) -> dict[str, Requirement]:
    """Return a file's pins by their canonical names."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [Requirement(match["pin"]) for line in lines if (match := PIN.fullmatch(line))]
    return {canonicalize_name(each.name): each for each in found}


def installed(name: str) -> str | None:
    """Return the version of a package in this environment."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@pytest.mark.parametrize("name", [*HASHED, "constraints"])
def test_a_file_has_pins_and_hashes_and_nothing_else(name: str) -> None:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    strange = [
        line for line in lines if not (line.startswith("# ") or PIN.fullmatch(line) or HASH.fullmatch(line))
    ]
    assert strange == []


@pytest.mark.shows("S31")
@pytest.mark.parametrize("name", HASHED)
def test_every_pin_has_a_hash(name: str) -> None:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert pins(FOLDER / f"{name}.txt")
    bare = [
        a for a, b in zip(lines, [*lines[1:], ""], strict=True) if PIN.fullmatch(a) and not HASH.fullmatch(b)
    ]
    assert bare == []


def test_a_package_is_in_one_set_with_the_version_of_all() -> None:
    constraints = {name: str(pin.specifier) for name, pin in pins(FOLDER / "constraints.txt").items()}
    together: dict[str, str] = {}
    for name in PRODUCT:
        own = {package: str(pin.specifier) for package, pin in pins(FOLDER / f"{name}.txt").items()}
        assert not together.keys() & own.keys()
        together |= own
    assert together == constraints


@pytest.mark.parametrize("name", PRODUCT)
def test_this_environment_has_the_pinned_versions(name: str) -> None:
    wrong = {
        package: (str(pin.specifier), installed(package))
        for package, pin in pins(FOLDER / f"{name}.txt").items()
        if (pin.marker is None or pin.marker.evaluate()) and str(pin.specifier) != f"=={installed(package)}"
    }
    assert wrong == {}


@pytest.mark.shows("S31")
@pytest.mark.parametrize("layer", ["base", "vectors"])
def test_a_layer_installs_the_set_of_its_name(layer: str) -> None:
    copy = (ROOT / "layers" / layer / "requirements.txt").read_text(encoding="utf-8")
    assert copy == (FOLDER / f"{layer}.txt").read_text(encoding="utf-8")


def test_the_base_layer_takes_the_tokenizer_from_the_pinned_model() -> None:
    (pin,) = pins(ROOT / "layers" / "base" / "tokenizer.txt").values()
    assert pin == pins(FOLDER / "local.txt")["wordllama"]


def test_every_group_of_the_project_is_compiled() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert set(groups) == set(HASHED)
    for group, entries in groups.items():
        sets = PRODUCT[: PRODUCT.index(group) + 1] if group in PRODUCT else (group,)
        pinned = {package for name in sets for package in pins(FOLDER / f"{name}.txt")}
        assert {canonicalize_name(Requirement(entry).name) for entry in entries} <= pinned


@pytest.mark.shows("S30")
def test_an_audit_that_could_not_look_fails() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\naudit:")[1].split("\n\n")[0]
    # Without it a package that the index does not know is skipped, and the audit of nothing succeeds.
    assert "--strict" in recipe
    assert all(name in recipe for name in ("base", "vectors"))
    assert "make audit" in (ROOT / ".ci/run").read_text(encoding="utf-8")
