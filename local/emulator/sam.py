"""`sam` of its own environment, against an emulator."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from local.emulator.endpoint import EmulatorFailed

REPOSITORY = Path(__file__).resolve().parents[2]
SAM = REPOSITORY / ".venv-sam" / "bin" / "sam"


def build(folder: Path, region: str) -> None:
    """Build the template into `folder`, its layers for this machine in place of Lambda's."""
    # No cache: it does not see these variables.
    _sam(["build", "--build-dir", str(folder), "--no-cached"], region, PLATFORM="", BYTECODE="")


def deploy(template: Path, stack: str, parameters: Mapping[str, str], endpoint: str, region: str) -> None:
    """Deploy a built `template` as `stack` into the emulator at `endpoint`."""
    overrides = [f'{name}="{_escaped(value)}"' for name, value in parameters.items()]
    given = ["--parameter-overrides", *overrides] if overrides else []
    _sam(
        [
            "deploy",
            *("--template-file", str(template), "--stack-name", stack),
            *("--resolve-s3", "--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar"),
            *("--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"),
            *given,
        ],
        region,
        AWS_ENDPOINT_URL=endpoint,
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _sam(arguments: Iterable[str], region: str, **variables: str) -> None:
    if not SAM.exists():
        raise EmulatorFailed(f"{SAM} is missing; run: make setup-all")
    state = SAM.parents[1] / "state"
    state.mkdir(exist_ok=True)
    # Dummy credentials: an emulator accepts any key, and real ones must not reach it.
    stripped = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = stripped | {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAM_CLI_TELEMETRY": "0",
        "__SAM_CLI_APP_DIR": str(state),
        **variables,
    }
    # The layers' Makefiles find uv and its settings by this module.
    command = [sys.executable, "-m", "tools.uv_environment", str(SAM), *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EmulatorFailed(f"sam {command[4]} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
