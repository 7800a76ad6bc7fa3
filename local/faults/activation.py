"""Activation in a stack, once at its start: `FAULTS` enables faults, `RECORD_AWS_CALLS` a record of calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local.faults import aws_calls
from local.faults.control import FaultControl
from local.faults.rules import Rule, parse
from local.faults.worker import FOLDER

VARIABLE: Final = "FAULTS"
"""Initial rules, separated by semicolons; `on` for none yet. Empty or absent: nothing is wrapped."""
INJECTION: Final = Path(__file__).resolve().parent / "injection"


def control_folder(state: Path) -> Path:
    """Return the fault control folder of a stack."""
    return state / "faults"


def control_of(state: Path, environment: Mapping[str, str] = os.environ) -> FaultControl | None:
    """Return the fault control of the stack on `state`; None when faults are disabled."""
    return FaultControl(control_folder(state)) if environment.get(VARIABLE, "").strip() else None


def first_rules(environment: Mapping[str, str] = os.environ) -> list[Rule]:
    """Return the initial rules. Raises WrongRule."""
    texts = [text.strip() for text in environment.get(VARIABLE, "").split(";")]
    return [parse(text) for text in texts if text not in ("", "on")]


def worker_variables(
    control: FaultControl | None, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables by which functions' processes are instrumented; none: they are not."""
    found = {FOLDER: str(control.folder)} if control is not None else {}
    if folder := environment.get(aws_calls.VARIABLE):
        found[aws_calls.VARIABLE] = folder
    return found
