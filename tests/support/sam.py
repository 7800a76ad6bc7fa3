"""SAM CLI's own parser of commands and of samconfig.toml, in its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.repository import ROOT

PYTHON: Final = ROOT / ".venv-sam" / "bin" / "python"
NEEDED: Final = "there is no .venv-sam (make setup-all)"


def parsed(commands: Sequence[Sequence[str]], folder: Path = ROOT) -> list[dict[str, Any]]:
    """Return `{"options": …}` or `{"error": …}` for each command, as SAM parses it in `folder`.

    None of them runs, and no path of the folder is written.
    """
    state = ROOT / ".venv-sam" / "state"
    environment: Mapping[str, str] = {
        **os.environ,
        "AWS_DEFAULT_REGION": "eu-west-1",
        "SAM_CLI_TELEMETRY": "0",
        "__SAM_CLI_APP_DIR": str(state),
    }
    state.mkdir(exist_ok=True)
    script = ROOT / "tests" / "support" / "sam_commands.py"
    done = subprocess.run(
        [str(PYTHON), str(script)],
        cwd=folder,
        env=environment,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
