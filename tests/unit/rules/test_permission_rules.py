"""E9004 and E9005: wildcards in what roles may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rules.linting import findings, role

BUCKET = "'arn:aws:s3:::corpus/*'"


def statement(action: str, resource: str) -> str:
    return f"{{Effect: Allow, Action: {action}, Resource: {resource}}}"


@pytest.mark.parametrize(
    "allowed",
    [
        statement("'s3:GetObject'", BUCKET),
        statement("['ec2:CreateNetworkInterface', 'ec2:DescribeNetworkInterfaces']", "'*'"),
        "{Effect: Deny, Action: '*', Resource: '*'}",
    ],
)
def test_named_permissions_and_the_explained_ones_pass(tmp_path: Path, allowed: str) -> None:
    assert findings(tmp_path, role(allowed)) == []


@pytest.mark.shows("S15")
@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("E9004", statement("'s3:*'", BUCKET)),
        ("E9004", statement("['s3:GetObject', 's3:Put*']", BUCKET)),
        ("E9004", f"{{Effect: Allow, NotAction: 's3:GetObject', Resource: {BUCKET}}}"),
        ("E9005", statement("'s3:GetObject'", "'*'")),
        ("E9005", statement("'s3:GetObject'", f"[{BUCKET}, 'arn:aws:s3:::*']")),
        ("E9005", statement("['ec2:CreateNetworkInterface', 'sqs:SendMessage']", "'*'")),
        ("E9005", f"{{Effect: Allow, Action: 's3:GetObject', NotResource: {BUCKET}}}"),
    ],
)
def test_a_wildcard_is_found(tmp_path: Path, rule: str, allowed: str) -> None:
    assert [found for found, _ in findings(tmp_path, role(allowed))] == [rule]


@pytest.mark.shows("S15")
def test_a_wildcard_behind_a_condition_is_found(tmp_path: Path) -> None:
    hidden = (
        f"!If [Some, {statement(chr(39) + 's3:*' + chr(39), chr(39) + '*' + chr(39))}, !Ref 'AWS::NoValue']"
    )
    template = "Conditions:\n  Some: !Equals [!Ref 'AWS::Region', eu-west-1]\n" + role(hidden)
    assert sorted(found for found, _ in findings(tmp_path, template)) == ["E9004", "E9005"]
