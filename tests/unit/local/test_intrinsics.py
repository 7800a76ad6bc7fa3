from __future__ import annotations

from typing import Any

import pytest

from local.template.intrinsics import NO_VALUE, Resolver, TemplateError

NAMES = {"Stage": "dev", "Queue": "http://queue", "Subnets": ["a", "b"], "Empty": ""}
RESOLVER = Resolver(
    NAMES,
    {"Queue.Arn": "arn:queue"},
    conditions={
        "Dev": {"Fn::Equals": [{"Ref": "Stage"}, "dev"]},
        "Prod": {"Fn::Not": [{"Condition": "Dev"}]},
        "Both": {"Fn::And": [{"Condition": "Dev"}, {"Condition": "Prod"}]},
        "Either": {"Fn::Or": [{"Condition": "Dev"}, {"Condition": "Prod"}]},
    },
    mappings={"Sizes": {"dev": {"memory": 128}}},
)


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"Ref": "Stage"}, "dev"),
        ({"Ref": "Subnets"}, ["a", "b"]),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, "arn:queue"),
        ({"Fn::GetAtt": "Queue.Arn"}, "arn:queue"),
        ({"Fn::Sub": "${Stage}-${Queue.Arn}-${!Literal}"}, "dev-arn:queue-${Literal}"),
        ({"Fn::Sub": ["${Stage}${Own}", {"Own": {"Ref": "Queue"}}]}, "devhttp://queue"),
        ({"Fn::Sub": "${Subnets}"}, "a,b"),
        ({"Fn::Join": ["+", [1, {"Ref": "Stage"}]]}, "1+dev"),
        ({"Fn::Join": ["", {"Ref": "Subnets"}]}, "ab"),
        ({"Fn::Split": [",", "a,b"]}, ["a", "b"]),
        ({"Fn::Select": ["1", {"Ref": "Subnets"}]}, "b"),
        ({"Fn::If": ["Dev", "yes", "no"]}, "yes"),
        ({"Fn::If": ["Prod", "yes", "no"]}, "no"),
        ({"Fn::If": ["Both", 1, 2]}, 2),
        ({"Fn::If": ["Either", 1, 2]}, 1),
        ({"Fn::FindInMap": ["Sizes", {"Ref": "Stage"}, "memory"]}, 128),
        ({"Fn::Equals": [1, "1"]}, True),
        ({"a": [{"Ref": "Stage"}, 1, None], "b": {"c": True}}, {"a": ["dev", 1, None], "b": {"c": True}}),
    ],
)
def test_functions_become_values(node: Any, value: Any) -> None:
    assert RESOLVER.resolve(node) == value


def test_no_value_leaves_the_property_out() -> None:
    node = {
        "kept": 1,
        "gone": {"Ref": "AWS::NoValue"},
        "list": [1, {"Fn::If": ["Prod", 2, {"Ref": "AWS::NoValue"}]}],
    }
    assert RESOLVER.resolve(node) == {"kept": 1, "list": [1]}
    assert RESOLVER.resolve({"Ref": "AWS::NoValue"}) is NO_VALUE


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"Ref": "Nobody"}, "Ref of Nobody has no value"),
        ({"Fn::GetAtt": ["Queue", "Nothing"]}, "Fn::GetAtt of Queue.Nothing"),
        ({"Fn::Sub": "${Nobody}"}, "Fn::Sub of Nobody"),
        ({"Fn::If": ["Nobody", 1, 2]}, "no condition Nobody"),
        ({"Fn::FindInMap": ["Sizes", "prod", "memory"]}, "mapping Sizes has no prod.memory"),
        ({"Fn::Cidr": ["10.0.0.0/8"]}, "Fn::Cidr is not known"),
    ],
)
def test_what_has_no_value_is_named(node: Any, expected: str) -> None:
    with pytest.raises(TemplateError, match=expected):
        RESOLVER.resolve(node)


def test_unknown_names_can_be_kept() -> None:
    lenient = Resolver(NAMES, keep_references=True)
    unknown = {"Fn::Sub": "${Stage}-${Later}"}
    assert lenient.resolve([{"Ref": "Later"}, unknown, {"Ref": "Stage"}]) == [
        {"Ref": "Later"},
        unknown,
        "dev",
    ]


def test_a_resource_is_included_by_its_condition() -> None:
    assert RESOLVER.includes({"Type": "T"})
    assert RESOLVER.includes({"Type": "T", "Condition": "Dev"})
    assert not RESOLVER.includes({"Type": "T", "Condition": "Prod"})
