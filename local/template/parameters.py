"""Parameters of the template: defaults, overrides, and the template's constraints."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from local.template.intrinsics import TemplateError


class ParameterError(TemplateError):
    """Raised for a parameter that does not exist, has no value, or has one that is not allowed."""


def parse_overrides(assignments: Iterable[str]) -> dict[str, str]:
    """Return `["Key=Value", …]` as a dictionary; the last one wins. Raises ParameterError."""
    overrides = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise ParameterError(f"{assignment!r} is not KEY=VALUE")
        overrides[name] = value
    return overrides


def parameter_values(declared: Mapping[str, Any], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return every parameter's value as text. Raises ParameterError with parameter and problem."""
    if unknown := sorted(set(overrides) - set(declared)):
        known = difflib.get_close_matches(unknown[0], declared, n=3) or sorted(declared)
        raise ParameterError(f"the template has no parameter {unknown[0]}; it has {', '.join(known)}")
    values = {}
    for name, rules in declared.items():
        if name not in overrides and "Default" not in rules:
            raise ParameterError(f"parameter {name} has no default and needs a value")
        values[name] = str(overrides.get(name, rules.get("Default")))
        _check(name, values[name], rules)
    return values


def as_references(declared: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of `Ref` for each parameter: lists are split, everything else stays text."""
    lists = {name for name, rules in declared.items() if "List" in rules["Type"]}
    return {name: value.split(",") if name in lists else value for name, value in values.items()}


def _check(name: str, value: str, rules: Mapping[str, Any]) -> None:
    if rules["Type"] == "Number":
        _check_number(name, value, rules)
    pattern = rules.get("AllowedPattern")
    if pattern is not None and re.fullmatch(pattern, value) is None:
        wanted = rules.get("ConstraintDescription")
        why = f"it must be {wanted}" if wanted else f"which does not match {pattern}"
        raise ParameterError(f"parameter {name} is {value!r}, {why}")
    allowed = [str(each) for each in rules.get("AllowedValues", ())]
    if allowed and value not in allowed:
        raise ParameterError(f"parameter {name} is {value!r}, which is none of {', '.join(allowed)}")


def _check_number(name: str, value: str, rules: Mapping[str, Any]) -> None:
    try:
        number = float(value)
    except ValueError:
        raise ParameterError(f"parameter {name} is {value!r}, which is no number") from None
    if number < float(rules.get("MinValue", number)) or number > float(rules.get("MaxValue", number)):
        bounds = f"{rules.get('MinValue', '…')} to {rules.get('MaxValue', '…')}"
        raise ParameterError(f"parameter {name} is {value}, which is outside {bounds}")
