"""Runtime for the functions of a build on this machine's Python, in an emulator that has no Lambda images.

AWS gives a `python3.13` function its interpreter, its runtime client and its layers below /opt. An emulator
without containers gives a `provided.al2023` function none of these, only its code and the Runtime API, and
starts the code's `bootstrap`. The bootstrap written here supplies what is missing and nothing else: this
interpreter without its site-packages, the runtime client, and the function's layers as they were deployed.
"""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import yaml

RUNTIME: Final = "provided.al2023"
BOOTSTRAP: Final = "bootstrap"
SUBSTITUTED: Final = "substituted.yaml"
_RUNTIME_CLIENT: Final = ("awslambdaric", "simplejson", "snapshot-restore-py")
"""Distributions of the runtime client; a function sees no other package of this environment."""


class HostRuntime:
    """One build in `folder`, an absolute path, with the runtime of its functions.

    build/     output of `sam build`, which deletes everything else there
    layers/    the deployed layers, unpacked, by their content
    opt/       a link to each layer in use, by its logical id
    runtime/   links to the runtime client
    """

    def __init__(self, folder: Path) -> None:
        self.build = folder / "build"
        self.unpacked = folder / "layers"
        self.layers: dict[str, list[str]] = {}
        """Layers of each function by logical ids, in the function's order; known after `substitute`."""
        self._opt = folder / "opt"
        self._client = folder / "runtime"
        for made in (self.unpacked, self._opt, self._client):
            made.mkdir(parents=True, exist_ok=True)

    def layer(self, name: str) -> Path:
        """Return the path where the functions see the layer with the logical id `name`."""
        return self._opt / name

    def mount(self, name: str, unpacked: Path) -> None:
        """Make `unpacked` visible to the functions as the layer `name`."""
        _link(self.layer(name), unpacked)

    def mount_built(self) -> None:
        """Make the layers of the build visible to the functions, until the deployed ones are mounted."""
        template: dict[str, Any] = yaml.safe_load((self.build / "template.yaml").read_text())
        for name, body in template["Resources"].items():
            if body["Type"] == "AWS::Serverless::LayerVersion":
                self.mount(name, self.build / body["Properties"]["ContentUri"])

    def substitute(self) -> Path:
        """Make the build run on this machine; returns the template to deploy, beside the built one.

        The template gets another runtime, and each function's folder one more file.
        """
        _link_runtime_client(self._client)
        template: dict[str, Any] = yaml.safe_load((self.build / "template.yaml").read_text())
        template["Globals"]["Function"]["Runtime"] = RUNTIME
        for name, body in template["Resources"].items():
            if body["Type"] == "AWS::Serverless::Function":
                self.layers[name] = [layer["Ref"] for layer in body["Properties"].get("Layers", ())]
                path = [*(self.layer(layer) / "python" for layer in self.layers[name]), self._client]
                bootstrap = self.build / body["Properties"]["CodeUri"] / BOOTSTRAP
                bootstrap.write_text(_bootstrap(path))
                bootstrap.chmod(0o755)
        substituted = self.build / SUBSTITUTED
        substituted.write_text(yaml.safe_dump(template, sort_keys=False))
        return substituted


def _link_runtime_client(folder: Path) -> None:
    for name in _RUNTIME_CLIENT:
        distribution = importlib.metadata.distribution(name)
        for part in {file.parts[0] for file in distribution.files or ()}:
            _link(folder / part, Path(str(distribution.locate_file(part))))


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _bootstrap(path: list[Path]) -> str:
    """Return the program that the emulator starts: `path` comes behind the function's own folder."""
    packages = "".join(f":{shlex.quote(str(entry))}" for entry in path)
    return (
        "#!/bin/sh\n"
        f'PYTHONPATH="$LAMBDA_TASK_ROOT"{packages}\n'
        "export PYTHONPATH\n"
        # -S: this environment's own packages stay out.
        f'exec {shlex.quote(sys.executable)} -S -m awslambdaric "$_HANDLER"\n'
    )
