"""Compile pyproject.toml's dependency groups to pinned and hashed files in requirements/.

The product's groups are compiled together first, so that a package has one version in every layer, in the
local cloud and under the tests. Each group is then written without what the ones before it have. The tools'
groups are environments of their own. The files name no index, no host and no folder.

    python -m tools.lock [--upgrade] [--upgrade-package NAME]...
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tools.uv_environment import environment

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("requirements")
PRODUCT = ("base", "vectors", "local", "dev")
TOOLS = ("uv", "sam", "ministack", "audit", "pg16", "schemathesis", "extraction")
LAYERS = ("base", "vectors")
MODEL = "wordllama"  # its wheel carries the tokenizer that the base layer has
HEADER = "# Compiled from pyproject.toml by `make lock`: edit that file, not this one.\n"
# One file for every system and every Python from 3.11 on, with one version of a package for all of them.
OPTIONS = [
    "--universal",
    "--python-version",
    "3.11",
    "--fork-strategy",
    "fewest",
    "--no-header",
    "--no-annotate",
]
OPTIONS += ["--no-emit-index-url", "--no-emit-find-links", "--no-emit-index-annotation"]


def compile_groups(name: str, groups: list[str], options: list[str]) -> None:
    """Write requirements/`name`.txt from the named dependency `groups`."""
    target = FOLDER / f"{name}.txt"
    uv = str(Path(sys.executable).parent / "uv")
    command = [uv, "pip", "compile", "--quiet", *OPTIONS, *options, "--output-file", str(target)]
    for group in groups:
        command += ["--group", group]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, stdout=subprocess.DEVNULL)
    text = (ROOT / target).read_text(encoding="utf-8")
    (ROOT / target).write_text(HEADER + text.removeprefix(HEADER), encoding="utf-8")
    print(f"{target}: {len(names(target))} packages")


def names(path: Path) -> list[str]:
    """Return the packages that a requirements file pins, in its order."""
    return re.findall(
        r"^([A-Za-z0-9._-]+)(?:\[[^]]*])?==", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE
    )


def write_layers() -> None:
    """Copy what the layers install into their folders: `sam build` gives a layer's Makefile nothing else."""
    for name in LAYERS:
        text = (ROOT / FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        (ROOT / "layers" / name / "requirements.txt").write_text(text, encoding="utf-8")
    local = (ROOT / FOLDER / "local.txt").read_text(encoding="utf-8")
    pinned = re.search(rf"^{MODEL}==.*(?:\n +--hash=.*)+\n", local, re.MULTILINE)
    assert pinned, f"{MODEL} is no longer pinned"  # noqa: S101
    (ROOT / "layers/base/tokenizer.txt").write_text(HEADER + pinned[0], encoding="utf-8")


def main(options: list[str]) -> None:
    """Compile all files; `options` are uv's, such as --upgrade."""
    (ROOT / FOLDER).mkdir(exist_ok=True)
    constraints = FOLDER / "constraints.txt"
    compile_groups("constraints", list(PRODUCT), options)
    emitted: list[str] = []
    for count, name in enumerate(PRODUCT, 1):
        # What an earlier set has is left out here, and an old pin must not be preferred to the constraint.
        skipped = [argument for package in emitted for argument in ("--no-emit-package", package)]
        (ROOT / FOLDER / f"{name}.txt").unlink(missing_ok=True)
        compile_groups(
            name, list(PRODUCT[:count]), ["--constraints", str(constraints), "--generate-hashes", *skipped]
        )
        emitted += names(FOLDER / f"{name}.txt")
    for name in TOOLS:
        compile_groups(f"tools-{name}", [f"tools-{name}"], ["--generate-hashes", *options])
    write_layers()


if __name__ == "__main__":
    main(sys.argv[1:])
