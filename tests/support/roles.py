"""Permissions of the template's roles, by resource."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from tests.support.function_env import template

Permissions = dict[str, set[str]]


def listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def named(value: Any) -> str:
    """Return the resources that an ARN is made of, with a path below: `ContentBucket/raw/*`."""
    if not isinstance(value, dict):
        return str(value)
    ((how, what),) = value.items()
    if how == "Fn::If" and what[2] == {"Ref": "AWS::NoValue"}:
        return named(what[1])
    if how == "Fn::If":
        return f"{what[0]} ? {named(what[1])} : {named(what[2])}"
    if how == "Fn::GetAtt":
        return ".".join(what) if "Outputs." in what[1] else str(what[0])
    if how == "Fn::Sub":
        last = re.sub(r"\$\{(\w+)\.Arn\}:live", r"\1.Alias", str(what)).rpartition(":")[2]
        return re.sub(r"\$\{(\w+)(?:\.Arn)?\}", r"\1", last)
    return str(what) if how == "Ref" else str(value)


def permissions(logical_id: str, *services: str) -> Permissions:
    """Return the actions of these services that the function's role allows, by resource.

    A table of which only some items may be touched is one resource for each kind: `StateTable/robots`.
    """
    policies = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"]
    statements = [
        each["Fn::If"][1] if "Fn::If" in each else each
        for policy in policies
        for each in policy["PolicyDocument"]["Statement"]
    ]
    found: Permissions = defaultdict(set)
    for statement in statements:
        assert statement["Effect"] == "Allow"
        actions = {each for each in listed(statement["Action"]) if each.partition(":")[0] in services}
        for resource in listed(statement["Resource"]) if actions else ():
            for name in _items(named(resource), statement.get("Condition", {})):
                found[name] |= actions
    return dict(found)


def _items(resource: str, condition: dict[str, Any]) -> list[str]:
    patterns = condition.get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys")
    if patterns is None:
        return [resource]
    # A kind of items, one of them, or the only one of its kind.
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*(#(\*|[a-z_]+))?", each) for each in patterns)
    return [f"{resource}/{each.partition('#')[0]}" for each in patterns]
