"""Run a command with what pip knows about this machine handed to uv.

uv does not read pip's configuration, so an index, a certificate, a proxy or a folder of wheels that pip uses
is translated into uv's variables at run time; none of it is ever written into a file of the repository.

    python -m tools.uv_environment COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# A setting for one command is stronger than one for all of them, and the environment is stronger than files.
SECTIONS = ("global.", "install.", ":env:.")


def pip_settings(listing: str) -> dict[str, str]:
    """Return pip's effective settings from the output of `pip config list`, e.g. {"index-url": "https://…"}."""
    settings: dict[str, str] = {}
    for section in SECTIONS:
        for line in listing.splitlines():
            name, found, value = line.partition("=")
            if found and name.startswith(section):
                settings[name.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return pip's `settings` as the environment variables that uv reads."""
    variables = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    for setting, names in {
        "index-url": ["UV_DEFAULT_INDEX"],
        "cert": ["SSL_CERT_FILE"],
        "client-cert": ["SSL_CLIENT_CERT"],
        "proxy": ["HTTPS_PROXY", "HTTP_PROXY"],
        "default-timeout": ["UV_HTTP_TIMEOUT"],
        "timeout": ["UV_HTTP_TIMEOUT"],
    }.items():
        if settings.get(setting):
            variables |= dict.fromkeys(names, settings[setting])
    for setting, name, separator in (
        ("extra-index-url", "UV_INDEX", " "),
        ("find-links", "UV_FIND_LINKS", ","),
        ("trusted-host", "UV_INSECURE_HOST", " "),
    ):
        if values := settings.get(setting, "").split():
            variables[name] = separator.join(values)
    if settings.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        variables["UV_NO_INDEX"] = "1"
    return variables


def environment(python: str = sys.executable, own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment to run uv in: this process's own over the settings of `python`'s pip."""
    listing = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    uv = Path(python).parent / "uv"
    # The layers' Makefiles look for uv by this name.
    found = {"UV_PYTHON": python} | ({"UV": str(uv)} if uv.is_file() else {})
    if not os.access(Path(own.get("XDG_CACHE_HOME") or own.get("HOME") or "/"), os.W_OK):
        found["UV_NO_CACHE"] = "1"
    return uv_variables(pip_settings(listing.stdout)) | found | dict(own)


def main(command: list[str]) -> None:
    """Replace this process by `command`."""
    if not command:
        sys.exit(__doc__)
    # The command may be a path with spaces or a name on PATH; no shell sees it.
    os.execvpe(command[0], command, environment())  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
