"""The functions of template.yaml as Lambda would start them, with its parameters' defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.function_env import GIVEN
from tests.support.function_env import template as parsed_template
from tests.support.repository import ROOT


@dataclass(frozen=True)
class TemplateFunction:
    """One function: its code folder, its handler, its layers' logical ids and its environment."""

    name: str
    folder: Path
    handler: str
    layers: tuple[str, ...]
    environment: dict[str, str]


def template_functions() -> list[TemplateFunction]:
    """Return all functions of template.yaml."""
    template = parsed_template()
    shared = template.get("Globals", {}).get("Function", {})
    found = []
    for name, body in template["Resources"].items():
        if body["Type"] == "AWS::Serverless::Function":
            own = body["Properties"]
            layers = [*shared.get("Layers", []), *own.get("Layers", [])]
            variables = _variables(shared) | _variables(own)
            found.append(
                TemplateFunction(
                    name=name,
                    folder=ROOT / own.get("CodeUri", shared.get("CodeUri")),
                    handler=own["Handler"],
                    layers=tuple(dict.fromkeys(layer["Ref"] for layer in layers)),
                    environment={key: _value(value, template) for key, value in variables.items()},
                )
            )
    return found


def _variables(properties: dict[str, Any]) -> dict[str, Any]:
    return dict(properties.get("Environment", {}).get("Variables", {}))


def _value(value: Any, template: dict[str, Any]) -> str:
    """Return what a variable becomes: a default, or a resource's logical id in the shape of its type."""
    if not isinstance(value, dict):
        return str(value)
    if "Fn::If" in value:
        # No condition of a variable holds with the defaults.
        return _value(value["Fn::If"][2], template)
    reference = value.get("Ref")
    if reference in template.get("Parameters", {}):
        return str(template["Parameters"][reference].get("Default", GIVEN.get(reference, "")))
    if reference is None:
        return str(next(iter(value)))
    kind = template["Resources"].get(reference, {}).get("Type")
    return (
        f"https://sqs.example.com/000000000000/{reference}" if kind == "AWS::SQS::Queue" else str(reference)
    )
