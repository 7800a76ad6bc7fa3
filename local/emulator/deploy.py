"""Deployment of the template into an AWS emulator.

    python -m local.emulator.deploy --endpoint URL --database-url URL --parameter KEY=VALUE …

The emulator runs everything by its own Lambda, queues, event source mappings and API gateway; Postgres, the
embedding endpoint and Membership are elsewhere, as on AWS, and are named by `--parameter`. Standard output is
the URL of the API and nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.emulator import sam
from local.emulator.endpoint import Emulator, EmulatorFailed
from local.emulator.host_runtime import HostRuntime
from local.template.parameters import ParameterError, parse_overrides

SECRET: Final = "indexmill-database-url"
TOKENIZER_LAYER: Final = "BaseLayer"
TOKENIZER: Final = "tokenizer/wordllama-256.json"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the deployment."""

    endpoint: str
    database_url: str
    """Endpoint as the functions reach it."""
    parameters: Mapping[str, str]
    folder: Path
    """Folder for the build and the functions' layers; for an unchanged deployment, the build."""
    stack: str = "indexmill-dev"
    region: str = "eu-west-1"
    unchanged: bool = False
    """Deploy the output of `make build`, for an emulator that runs Lambda's own images."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Result of the deployment."""

    api_url: str
    resources: Mapping[str, str]
    """Physical ids by logical ids."""


def deploy(options: Options) -> Deployment:
    """Build, deploy, and place the layers in the functions' path. Raises EmulatorFailed."""
    emulator = Emulator(options.endpoint.rstrip("/"), options.region)
    # A database beside the emulator rarely has a certificate; a parameter may say otherwise.
    parameters = {
        "DatabaseUrlSecretArn": emulator.put_secret(SECRET, options.database_url),
        "DatabaseSslMode": "disable",
        # No reservations: one machine's functions are few.
        "DatabaseBehindProxy": "true",
    }
    host: HostRuntime | None = None
    template = options.folder / "template.yaml"
    if not options.unchanged:
        host = HostRuntime(options.folder.resolve())
        sam.build(host.build, options.region)
        template = host.substitute()
        # The Migrator runs while the stack is deployed.
        host.mount_built()
        parameters["TokenizerFile"] = str(host.layer(TOKENIZER_LAYER) / TOKENIZER)
    parameters |= options.parameters
    sam.deploy(template, options.stack, parameters, emulator.endpoint, options.region)
    resources = emulator.resources(options.stack)
    if host is not None:
        _mount_layers(emulator, resources, host)
        emulator.reset_concurrency()
    return Deployment(
        api_url=emulator.api_url(resources["Api"], parameters.get("Stage", "dev")),
        resources=resources,
    )


def _mount_layers(emulator: Emulator, resources: Mapping[str, str], host: HostRuntime) -> None:
    """Mount the layers that the emulator attached to the functions, checked against the template."""
    for function, names in host.layers.items():
        attached = emulator.layers(resources[function])
        if len(attached) != len(names):
            raise EmulatorFailed(f"{function} was deployed with the layers {attached} in place of {names}")
        for name, arn in zip(names, attached, strict=True):
            host.mount(name, emulator.unpack_layer(arn, host.unpacked))


def main() -> int:
    """Run the command line."""
    options = _options()
    try:
        deployment = deploy(options)
    except EmulatorFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"deployed {options.stack}\n")
    sys.stdout.write(f"{deployment.api_url}\n")
    return 0


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m local.emulator.deploy", description=__doc__)
    parser.add_argument("--endpoint", required=True, help="URL of the emulator")
    parser.add_argument("--database-url", required=True, help="Postgres with pgvector; kept as a secret")
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
    )
    parser.add_argument("--stack-name", default="indexmill-dev")
    parser.add_argument("--region", default="eu-west-1")
    parser.add_argument("--folder", type=Path, help="for the build; the functions run from there")
    parser.add_argument("--unchanged", action="store_true", help="deploy what `make build` made, as it is")
    given = parser.parse_args()
    try:
        parameters = parse_overrides(given.parameter)
    except ParameterError as error:
        parser.error(str(error))
    folder = Path(".aws-sam/build" if given.unchanged else "build/emulator")
    return Options(
        endpoint=given.endpoint,
        database_url=given.database_url,
        parameters=parameters,
        folder=given.folder or sam.REPOSITORY / folder,
        stack=given.stack_name,
        region=given.region,
        unchanged=given.unchanged,
    )


if __name__ == "__main__":
    sys.exit(main())
