"""Options of a stack, and the line that carries them to its process; it imports little, as commands need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from local.stack.preparation import REPOSITORY


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Options of a stack."""

    state: Path
    port: int = 0
    """Port of the gateway; 0 takes that of the last start, or a free one."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Values of template parameters."""
    site_root: Path | None = None
    """Serve this folder in place of the built-in web site."""
    eager_polling: bool = False
    """Whether event sources take what is there at once, and let no batch fill."""
    pollers: int = 1
    """Receives of each event source that wait beside each other; Lambda has five."""
    cpu_share: bool = False
    """Whether each function gets Lambda's share of CPU for its memory."""
    postgres_port: int = 0
    """Port of Postgres; 0 takes a free one."""
    database_proxy: str = ""
    """Host and port of a pooler before Postgres, for the functions whose login is not the owner's."""
    secrets_manager: bool = False
    """Whether functions read their secrets from Secrets Manager, as on AWS, and get no literals."""
    renderer: str = ""
    """Browser of the Scraper's functions: chromium: and a program's path; "" for none."""
    template: Path = REPOSITORY / "template.yaml"
    ministack_python: Path = REPOSITORY / ".venv-ministack" / "bin" / "python"
    keep_data: bool = True
    """False deletes the state folder at the end."""
    began: float | None = None
    """`time.monotonic()` when the user started to wait for the stack; None means now."""


def encode(options: StackOptions, *, bound: bool) -> str:
    """Return the options as the line that `main` reads."""
    return json.dumps({"bound": bound, "options": asdict(options)}, default=str)


def decode(line: str) -> tuple[StackOptions, bool]:
    """Return the options of a line."""
    message = json.loads(line)
    given = message["options"]
    for name in ("state", "template", "ministack_python", "site_root"):
        given[name] = None if given[name] is None else Path(given[name])
    return StackOptions(**given), message["bound"]
