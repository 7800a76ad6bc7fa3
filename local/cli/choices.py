"""Values for shell completion. Without a running stack they are read from the template, quickly."""

from __future__ import annotations

import re

from local.cli.terminal import DEFAULT_STATE

_FUNCTION = re.compile(r"^  (\w+):\n    Type: AWS::Serverless::Function$", re.MULTILINE)


def function_names(incomplete: str) -> list[str]:
    """Return the logical ids of the template's functions that begin with `incomplete`."""
    try:
        text = (DEFAULT_STATE.parent / "template.yaml").read_text(encoding="utf-8")
    except OSError:
        return []
    return sorted(name for name in _FUNCTION.findall(text) if name.startswith(incomplete))


def sample_names(incomplete: str) -> list[str]:
    """Return the names of sample events that begin with `incomplete`."""
    from local.cli.samples import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]
