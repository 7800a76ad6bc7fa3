"""Guards of the template: AWS takes it as it is, and no loop or retry is without a bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from local.template.translation import translate
from tests.support.function_env import ROOT, template

REGION = "eu-west-1"


@pytest.fixture(scope="module")
def translated() -> Iterator[dict[str, Any]]:
    """Return the resources that CloudFormation is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        yield translate(ROOT / "template.yaml", {}, {}, REGION)[0]["Resources"]


def referred(value: Any) -> set[str]:
    """Return the logical ids that a value refers to; CloudFormation makes these first."""
    if isinstance(value, list):
        return set().union(*map(referred, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(referred, value.values()))
    if "Ref" in value:
        found.add(str(value["Ref"]))
    if "Fn::GetAtt" in value:
        found.add(str(value["Fn::GetAtt"][0]))
    return found


def test_the_stage_comes_after_the_role_by_which_api_gateway_logs(translated: dict[str, Any]) -> None:
    (stage,) = (each for each in translated.values() if each["Type"] == "AWS::ApiGateway::Stage")
    assert "AccessLogSetting" in stage["Properties"]
    assert "ApiGatewayAccount" in referred(stage["Properties"])
    assert "ApiGatewayAccountLogRole" in referred(translated["ApiGatewayAccount"]["Properties"])


def test_the_regions_log_role_outlives_the_stack_and_can_be_left_alone() -> None:
    condition = {"Fn::Equals": [{"Ref": "ApiGatewayAccountRole"}, "create"]}
    assert template()["Conditions"]["CreatesAccountRole"] == condition
    for name in ("ApiGatewayAccount", "ApiGatewayAccountLogRole"):
        found = template()["Resources"][name]
        assert found["Condition"] == "CreatesAccountRole"
        assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("Retain", "Retain")
