"""Whether faults are possible in this stack: decided once, by the environment variable `FAULTS`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local.faults.control import FaultControl
from local.faults.rules import Rule, parse
from local.faults.worker import FOLDER

VARIABLE: Final = "FAULTS"
"""Rules to begin with, separated by semicolons; `on` for none yet. Empty or absent: nothing is wrapped."""
INJECTION: Final = Path(__file__).resolve().parent / "injection"


def control_folder(state: Path) -> Path:
    """Where a stack's faults are switched."""
    return state / "faults"


def control_of(state: Path, environment: Mapping[str, str] = os.environ) -> FaultControl | None:
    """The control of the stack on `state`; None when its faults are switched off."""
    return FaultControl(control_folder(state)) if environment.get(VARIABLE, "").strip() else None


def first_rules(environment: Mapping[str, str] = os.environ) -> list[Rule]:
    """The rules to begin with. Raises WrongRule."""
    texts = [text.strip() for text in environment.get(VARIABLE, "").split(";")]
    return [parse(text) for text in texts if text not in ("", "on")]


def worker_variables(control: FaultControl) -> dict[str, str]:
    """What functions are told."""
    return {FOLDER: str(control.folder)}
