"""Web ACL of a nested stack: the rules that can block a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from local.template.intrinsics import Resolver, TemplateError
from local.template.parameters import as_references, parameter_values
from local.template.source import parsed
from local.template.spec import BodySizeRule, CustomResponse, RateRule, WebAclSpec

_WEB_ACL: Final = "AWS::WAFv2::WebACL"
_UNCHANGED: Final = [{"Priority": 0, "Type": "NONE"}]
_CONTENT_TYPES: Final = {
    "APPLICATION_JSON": "application/json",
    "TEXT_HTML": "text/html",
    "TEXT_PLAIN": "text/plain",
}


def read_web_acl(path: Path, given: Mapping[str, Any], pseudo: Mapping[str, str]) -> WebAclSpec | None:
    """Return the web ACL of the nested stack at `path` with the parameters `given`; None if it has none.

    Raises TemplateError for what cannot be enforced here: nothing of a web ACL is silently left out but rules
    that only count.
    """
    stack: dict[str, Any] = parsed(path.read_text(encoding="utf-8"))
    declared = stack.get("Parameters", {})
    found = {name: body for name, body in stack["Resources"].items() if body["Type"] == _WEB_ACL}
    if not found:
        return None
    if len(found) > 1:
        raise TemplateError(f"{path.name}: one web ACL can be before the API, not {len(found)}")
    texts = {name: str(value) for name, value in given.items() if not isinstance(value, dict)}
    outside = {name: name for name in given.keys() - texts.keys()}
    values = as_references(declared, parameter_values(declared, {**outside, **texts}))
    resolver = Resolver({**pseudo, **values}, conditions=stack.get("Conditions"), keep_references=True)
    ((name, body),) = found.items()
    properties = resolver.resolve(body["Properties"])
    if "Allow" not in properties["DefaultAction"]:
        raise TemplateError(f"{name} blocks by default, which is not supported here")
    bodies = properties.get("CustomResponseBodies", {})
    ordered = sorted(properties["Rules"], key=lambda rule: int(rule["Priority"]))
    rules = tuple(_rule(rule, bodies) for rule in ordered if not _only_counts(rule))
    region, account = pseudo["AWS::Region"], pseudo["AWS::AccountId"]
    return WebAclSpec(f"arn:aws:wafv2:{region}:{account}:regional/webacl/{name}/local", rules)


def _only_counts(rule: Mapping[str, Any]) -> bool:
    return "Count" in rule.get("Action", {}) or "Count" in rule.get("OverrideAction", {})


def _rule(rule: Mapping[str, Any], bodies: Mapping[str, Any]) -> RateRule | BodySizeRule:
    name, statement = rule["Name"], rule["Statement"]
    if "Block" not in rule.get("Action", {}):
        raise TemplateError(f"rule {name} of the web ACL neither blocks nor counts")
    response = _response(rule["Action"]["Block"].get("CustomResponse"), bodies)
    match statement:
        case {"RateBasedStatement": rate}:
            return RateRule(
                name,
                int(rate["Limit"]),
                int(rate.get("EvaluationWindowSec", 300)),
                _key(name, rate),
                response,
            )
        case {
            "AndStatement": {"Statements": [{"RegexMatchStatement": path}, {"SizeConstraintStatement": size}]}
        }:
            return BodySizeRule(name, _path(name, path), _most_bytes(name, size), response)
    raise TemplateError(f"rule {name} of the web ACL has a statement that is not supported here")


def _key(name: str, rate: Mapping[str, Any]) -> str | None:
    """Return the header that requests are counted by; None is their address."""
    match rate:
        case {"ScopeDownStatement": _}:
            pass
        case {"AggregateKeyType": "IP"}:
            return None
        case {
            "AggregateKeyType": "CUSTOM_KEYS",
            "CustomKeys": [{"Header": {"Name": header, "TextTransformations": transformations}}],
        } if transformations == _UNCHANGED:
            return str(header)
    raise TemplateError(f"rule {name} of the web ACL counts neither by address nor by one header")


def _path(name: str, statement: Mapping[str, Any]) -> re.Pattern[str]:
    if statement["FieldToMatch"] != {"UriPath": {}} or statement["TextTransformations"] != _UNCHANGED:
        raise TemplateError(f"rule {name} of the web ACL matches something else than the path")
    return re.compile(statement["RegexString"])


def _most_bytes(name: str, statement: Mapping[str, Any]) -> int:
    field = {"Body": {"OversizeHandling": "MATCH"}}
    if (statement["ComparisonOperator"], statement["FieldToMatch"]) != ("GT", field):
        raise TemplateError(f"rule {name} of the web ACL does not match bodies above a size")
    return int(statement["Size"])


def _response(custom: Mapping[str, Any] | None, bodies: Mapping[str, Any]) -> CustomResponse | None:
    if custom is None:
        return None
    body = bodies.get(custom.get("CustomResponseBodyKey", ""), {"ContentType": "TEXT_PLAIN", "Content": ""})
    return CustomResponse(
        int(custom["ResponseCode"]),
        {each["Name"]: str(each["Value"]) for each in custom.get("ResponseHeaders", ())},
        _CONTENT_TYPES[body["ContentType"]],
        body["Content"],
    )
