"""The template as it was written.

cfn-lint's own view has passed the SAM translator, which fills in parameters.

cfn-lint takes a module whose name begins with an underscore for no rule.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from cfnlint.decode import decode
from cfnlint.rules import RuleMatch
from cfnlint.template import Template

from local.template.intrinsics import Resolver

Path = list[str | int]
LAMBDA_TIMEOUT = 3  # seconds, where neither the function nor Globals says anything


@dataclass(frozen=True)
class SqsSource:
    """A queue that triggers a function: its path in the template, both logical ids, the properties."""

    path: Path
    function: str
    queue: str | None
    properties: dict[str, Any]


class Source:
    """One template file and the parameter sets that it is deployed with."""

    def __init__(self, filename: str) -> None:
        decoded, _ = decode(filename)
        self.template: dict[str, Any] = decoded or {}
        self.folder = File(filename).parent
        self._located = Template(filename, self.template, ["us-east-1"])

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of each resource of this type, by logical id."""
        found = self.template.get("Resources", {}).items()
        return {name: body.get("Properties", {}) for name, body in found if body.get("Type") == kind}

    def function_property(self, function: str, name: str) -> Any:
        """Return a function's own property, else the one in Globals, else None."""
        properties = self.resources("AWS::Serverless::Function").get(function, {})
        own = properties or self.resources("AWS::Lambda::Function").get(function, {})
        return own.get(name, self.template.get("Globals", {}).get("Function", {}).get(name))

    def chosen(self, value: Any, parameters: dict[str, str]) -> Any:
        """Return what Fn::If makes of `value` with these parameters; None for AWS::NoValue."""
        while isinstance(value, dict) and "Fn::If" in value:
            condition, then, otherwise = value["Fn::If"]
            resolver = Resolver(parameters, conditions=self.template.get("Conditions", {}))
            value = then if resolver.condition(condition) else otherwise
        return None if value == {"Ref": "AWS::NoValue"} else value

    def parameter_sets(self) -> dict[str, dict[str, str]]:
        """Return the parameters' defaults and each set of samconfig.toml over them, by their names."""
        declared = self.template.get("Parameters", {}).items()
        defaults = {name: str(body["Default"]) for name, body in declared if "Default" in body}
        sets = {"the defaults": defaults}
        config = self.folder / "samconfig.toml"
        if config.is_file():
            for stage, commands in tomllib.loads(config.read_text(encoding="utf-8")).items():
                if isinstance(commands, dict):
                    given = commands.get("deploy", {}).get("parameters", {}).get("parameter_overrides", [])
                    lines = [given] if isinstance(given, str) else given
                    # As SAM does: what follows a space that is not in quotes is no part of the value.
                    words = [word for line in lines for word in shlex.split(line)]
                    own = dict(word.split("=", 1) for word in words if "=" in word)
                    sets[f"samconfig's {stage}"] = defaults | own
        return sets

    def sqs_sources(self) -> Iterator[SqsSource]:
        """Yield the SQS events of the functions and the event source mappings of queues."""
        for function, properties in self.resources("AWS::Serverless::Function").items():
            for event, body in properties.get("Events", {}).items():
                if body.get("Type") == "SQS":
                    path: Path = ["Resources", function, "Properties", "Events", event, "Properties"]
                    own = body.get("Properties", {})
                    yield SqsSource(path, function, target(own.get("Queue")), own)
        for name, properties in self.resources("AWS::Lambda::EventSourceMapping").items():
            queue = target(properties.get("EventSourceArn"))
            if queue in self.resources("AWS::SQS::Queue"):
                function = target(properties.get("FunctionName")) or ""
                yield SqsSource(["Resources", name, "Properties"], function, queue, properties)

    def match(self, path: Path, message: str) -> RuleMatch:
        """Return a finding at `path`, with the line of the file as it was written."""
        return RuleMatch(path, message, location=self._located.get_location_yaml(self.template, path))


def target(value: Any) -> str | None:
    """Return the logical id that a Ref or Fn::GetAtt names."""
    if isinstance(value, dict):
        if "Ref" in value:
            return str(value["Ref"])
        attribute = value.get("Fn::GetAtt")
        if attribute:
            return str(attribute[0] if isinstance(attribute, list) else attribute.split(".")[0])
    return None


def number(value: Any, parameters: dict[str, str], default: int | None = None) -> int | None:
    """Return a whole number of the template or of a parameter; None when it cannot be known."""
    if value is None:
        return default
    given = parameters.get(str(value["Ref"])) if isinstance(value, dict) and "Ref" in value else value
    try:
        return int(str(given))
    except ValueError:
        return None
