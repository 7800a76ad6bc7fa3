"""Write a bill of materials (CycloneDX 1.6, JSON) for each artefact of a build.

    python -m tools.sbom .aws-sam/build .aws-sam/sbom

An artefact is a folder of the build: a layer, or a function's package. Its bill names each distribution in it
with version, licence and the digests that its wheel was checked against, and every file of our own with its
digest. The same artefact has the same bill.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_USAGE_STATUS = 2
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*])?==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def write_bills(build: Path, target: Path) -> list[Path]:
    """Write the bill of each artefact in `build` as `target`/NAME.cdx.json; returns the files."""
    target.mkdir(parents=True, exist_ok=True)
    pinned = pinned_hashes(ROOT / "requirements")
    written = []
    for artefact in sorted(path for path in build.iterdir() if path.is_dir()):
        file = target / f"{artefact.name}.cdx.json"
        file.write_text(json.dumps(bill(artefact, pinned), indent=1) + "\n", encoding="utf-8")
        written.append(file)
    return written


def bill(artefact: Path, pinned: dict[tuple[str, str], list[str]]) -> dict[str, Any]:
    """Return the bill of one artefact; `pinned` are the digests of wheels by name and version."""
    packages = [
        _package(each, pinned)
        for each in sorted(
            distributions(path=[str(artefact / "python")]), key=lambda each: _normal(each.metadata["Name"])
        )
    ]
    components = packages + [_file(path, artefact) for path in _own_files(artefact)]
    name = {"type": "application", "bom-ref": artefact.name, "name": artefact.name}
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, artefact.name + digest)}",
        "version": 1,
        "metadata": {"component": name},
        "components": components,
        "dependencies": [{"ref": artefact.name, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def pinned_hashes(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Return the digests in the requirements files of the layers, by normal name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in ("base", "vectors"):
        digests: list[str] = []
        for line in (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines():
            if pin := _PIN.match(line):
                digests = found.setdefault((_normal(pin[1]), pin[2]), [])
            elif digest := _HASH.search(line):
                digests.append(digest[1])
    return found


def _package(package: Distribution, pinned: dict[tuple[str, str], list[str]]) -> dict[str, Any]:
    name, version = _normal(package.metadata["Name"]), package.version
    address = f"pkg:pypi/{name}@{version}"
    fields = package.metadata.json
    text = str(fields.get("license_expression") or fields.get("license") or "")
    # The wheel was one of these: an install with --require-hashes takes no other.
    hashes = [f"sha256:{digest}" for digest in pinned.get((name, version), ())]
    return {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "purl": address,
        **({"licenses": [{"license": {"name": text.splitlines()[0][:200]}}]} if text else {}),
        "properties": [{"name": "indexmill:wheel-digest", "value": each} for each in hashes],
    }


def _own_files(artefact: Path) -> Iterator[Path]:
    """Yield the files that no distribution has installed."""
    library = artefact / "python"
    installed = {
        (library / str(file)).resolve()
        for package in distributions(path=[str(library)])
        for file in package.files or ()
    }
    for path in sorted(artefact.rglob("*")):
        if path.is_file() and path.resolve() not in installed and path.suffix != ".pyc":
            yield path


def _file(path: Path, artefact: Path) -> dict[str, Any]:
    name = path.relative_to(artefact).as_posix()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Run the command line."""
    if len(sys.argv[1:]) != 2:
        sys.stderr.write("usage: python -m tools.sbom BUILD TARGET\n")
        return _USAGE_STATUS
    for file in write_bills(Path(sys.argv[1]), Path(sys.argv[2])):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
