"""Make a virtual environment with hash-checked packages; runs on a bare Python 3.11 or newer.

pip brings uv into the environment, uv installs the rest in seconds. Where uv cannot reach the index as
configured, it tries again with the system's certificates, and after that pip installs the same files.

    python -m tools.bootstrap ENVIRONMENT FILE... [--uv FILE] [--project]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.uv_environment import environment

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)


def make_environment(folder: Path) -> Path:
    """Make the virtual environment `folder`, or keep it when it works, and return its interpreter."""
    python = folder / "bin" / "python"
    version = "import sys; print(*sys.version_info[:2])"
    ours = " ".join(map(str, sys.version_info[:2]))
    if python.exists():
        answer = subprocess.run([str(python), "-c", version], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == ours:
            return python
    # The folder is cleared only if it is an environment.
    broken = (folder / "pyvenv.cfg").is_file()
    if folder.exists() and not broken and any(folder.iterdir()):
        sys.exit(f"{folder} is there and is no virtual environment: move it away first")
    venv.EnvBuilder(with_pip=True, symlinks=True, clear=broken).create(folder)
    return python


def run(command: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Run `command` and return whether it succeeded; the output of a failed one is printed."""
    done = subprocess.run(command, cwd=ROOT, env=dict(variables), capture_output=True, text=True, check=False)
    if done.returncode:
        print((done.stdout + done.stderr).strip(), file=sys.stderr)
    return done.returncode == 0


def install(python: Path, uv: Path, arguments: tuple[list[str], list[str]]) -> None:
    """Install by uv with the first of its `arguments`, or by pip with the second."""
    by_uv, by_pip = arguments
    variables = environment(sys.executable) | {"VIRTUAL_ENV": str(python.parent.parent)}
    command = [str(uv), "pip", *by_uv, "--python", str(python)]
    for extra in ({}, {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}):
        if uv.is_file() and run(command, variables | extra):
            return
    print("uv could not install; pip tries now, which takes longer", file=sys.stderr)
    if not run([str(python), "-m", "pip", *by_pip], os.environ):
        sys.exit(f"{python.parent.parent.name} could not be made: see above what pip said")


def install_uv(python: Path, requirements: str) -> None:
    """Put uv into the environment by pip; without it everything still works, only slower."""
    uv = python.parent / "uv"
    wanted = next(
        line for line in Path(requirements).read_text(encoding="utf-8").splitlines() if "==" in line
    )
    if uv.is_file():
        answer = subprocess.run([str(uv), "--version"], capture_output=True, text=True, check=False)
        if answer.stdout.split()[1:2] == [wanted.split("==")[1].split()[0]]:
            return
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "-r",
        requirements,
    ]
    if not run(command, os.environ):
        print("uv could not be installed; pip installs everything", file=sys.stderr)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="tools.bootstrap", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("files", nargs="+", help="requirements files, with hashes")
    parser.add_argument("--uv", help="requirements file of uv, which is installed first")
    parser.add_argument("--project", action="store_true", help="install this project too, editable")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make one environment."""
    options = parse(arguments)
    if sys.version_info < OLDEST:
        sys.exit("Indexmill needs Python 3.11 or newer")
    folder = options.environment.absolute()
    print(f"{folder.name}: Python {sys.version.split()[0]}", flush=True)
    python = make_environment(folder)
    files = [*options.files, *([options.uv] if options.uv else [])]
    if options.uv:
        install_uv(python, options.uv)
    # An environment of a tool is made by the uv of the one that runs this.
    uv = (python if options.uv else Path(sys.executable)).parent / "uv"
    listed = [argument for file in files for argument in ("-r", file)]
    by_uv = ["sync", "--quiet", "--require-hashes", "--compile-bytecode", *files]
    install(python, uv, (by_uv, ["install", "--quiet", "--require-hashes", "--no-deps", *listed]))
    if options.project:
        # Its build backend is one of the pinned packages: nothing is downloaded for this.
        editable = [
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "--editable",
            ".",
        ]
        install(python, uv, (editable, editable))
    print(f"{folder.name}: ready", flush=True)


if __name__ == "__main__":
    main()
