"""E9004 and E9005: a role names what it may do and with what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import Path, Source

KINDS = ("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::Serverless::Function")
# Actions that name no resource in any policy, each with its reason.
ANY_RESOURCE = {
    # Lambda's network interfaces have no name before they exist.
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}


def statements(source: Source) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each statement that allows something, wherever a condition hides it."""
    for kind in KINDS:
        for name, body in source.resources(kind).items():
            yield from search(body, ["Resources", name, "Properties"])


def search(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each statement below `value` that allows something."""
    if isinstance(value, dict):
        # With a principal it is a trust policy, which says who and not what.
        if value.get("Effect") == "Allow" and "Principal" not in value:
            yield path, value
        for key, part in value.items():
            yield from search(part, [*path, key])
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from search(part, [*path, index])


def listed(value: Any) -> list[Any]:
    """Return a value that may be single or a list as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


class WildcardAction(CloudFormationLintRule):
    """No statement allows actions by a pattern."""

    id = "E9004"
    shortdesc = "No wildcard actions"
    description = "A statement names each action that it allows"
    tags = ["iam"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the statements whose actions are patterns."""
        source = Source(cfn.filename)
        return [
            source.match(path, "Name the actions instead of a pattern")
            for path, statement in statements(source)
            if "NotAction" in statement
            or any("*" in str(action) for action in listed(statement.get("Action")))
        ]


class WildcardResource(CloudFormationLintRule):
    """No statement allows its actions on everything."""

    id = "E9005"
    shortdesc = "No wildcard resources"
    description = "A statement names its resources, but for actions that know none"
    tags = ["iam"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the statements that reach every resource of a service."""
        source = Source(cfn.filename)
        return [
            source.match(path, "Name the resources instead of all of them")
            for path, statement in statements(source)
            if not set(map(str, listed(statement.get("Action")))) <= ANY_RESOURCE
            and ("NotResource" in statement or any(map(_everything, listed(statement.get("Resource")))))
        ]


def _everything(resource: Any) -> bool:
    text = resource.get("Fn::Sub") if isinstance(resource, dict) else resource
    # The sixth part of an ARN is the resource.
    return isinstance(text, str) and (
        text == "*" or (text.startswith("arn:") and text.split(":", 5)[-1] == "*")
    )
