"""The nested stack of database and network, with the resources that each choice of its parameters makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, Final

from local.template.intrinsics import Resolver
from local.template.source import parsed
from tests.support.repository import ROOT

DATA: Final = ROOT / "stack" / "data.yaml"
CHOICES: Final = [
    {"Database": database, "Proxy": proxy, "Egress": egress, "PasswordRotationDays": days}
    for database, proxy, egress, days in product(
        ("aurora", "rds"), ("true", "false"), ("nat", "endpoints"), ("0", "30")
    )
]
_PSEUDO: Final = {
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::StackName": "indexmill",
}


@cache
def data_stack() -> dict[str, Any]:
    """Return stack/data.yaml with long intrinsics; read-only, it is parsed once."""
    found: dict[str, Any] = parsed(DATA.read_text(encoding="utf-8"))
    return found


@cache
def edge_stack() -> dict[str, Any]:
    """Return stack/edge.yaml likewise."""
    found: dict[str, Any] = parsed((ROOT / "stack" / "edge.yaml").read_text(encoding="utf-8"))
    return found


def parameters(given: Mapping[str, str]) -> dict[str, str]:
    """Return a value of every parameter: those of `given`, else its default."""
    defaults = {name: str(body.get("Default", "test")) for name, body in data_stack()["Parameters"].items()}
    return {**defaults, **given}


def resources(given: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what is made with the parameters of `given`, by logical id, with their conditions resolved.

    References to other resources stay as they are.
    """
    stack = data_stack()
    resolver = Resolver(
        {**_PSEUDO, **parameters(given)}, conditions=stack["Conditions"], keep_references=True
    )
    made = {name: body for name, body in stack["Resources"].items() if resolver.includes(body)}
    return {name: {**body, "Properties": _chosen(body, resolver)} for name, body in made.items()}


def outputs(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the outputs with their conditions resolved."""
    stack = data_stack()
    resolver = Resolver(
        {**_PSEUDO, **parameters(given)}, conditions=stack["Conditions"], keep_references=True
    )
    return {name: _choose(body["Value"], resolver) for name, body in stack["Outputs"].items()}


def of_type(made: Mapping[str, Mapping[str, Any]], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the properties of the resources of one type."""
    return {name: body["Properties"] for name, body in made.items() if body["Type"] == kind}


def references(node: Any) -> Iterator[str]:
    """Yield the logical ids that Ref and Fn::GetAtt name in `node`."""
    if isinstance(node, list):
        for each in node:
            yield from references(each)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name == "Ref":
                yield value
            elif name == "Fn::GetAtt":
                yield value[0] if isinstance(value, list) else value.split(".")[0]
            else:
                yield from references(value)


def _chosen(body: Mapping[str, Any], resolver: Resolver) -> Any:
    return _choose(body.get("Properties", {}), resolver)


def _choose(node: Any, resolver: Resolver) -> Any:
    """Return `node` with Fn::If resolved, parameters and texts in place, and unknown references kept."""
    if isinstance(node, list):
        return [_choose(each, resolver) for each in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"Fn::If"}:
        condition, then, otherwise = node["Fn::If"]
        return _choose(then if resolver.condition(condition) else otherwise, resolver)
    if set(node) in ({"Ref"}, {"Fn::Sub"}):
        return resolver.resolve(node)
    return {name: _choose(value, resolver) for name, value in node.items()}
