"""Addresses that may call the API, by its resource policy, and sources that may invoke a function."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from local.template.intrinsics import Resolver
from local.template.parameters import ParameterError
from local.template.translation import translate
from tests.support.function_env import GIVEN, template
from tests.support.repository import ROOT
from tests.support.roles import listed

REGION, ACCOUNT, STAGE = "eu-west-1", "123456789012", "dev"
COMPLETE = "POST/orchestrator/jobs/one/complete"


@cache
def translated(cidrs: str = "") -> dict[str, Any]:
    """Return the resources of the translated template, with parameters and conditions resolved."""
    found, parameters = translate(ROOT / "template.yaml", GIVEN, {"InternalCidrs": cidrs}, REGION)
    pseudo = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws"}
    resolver = Resolver(
        {**pseudo, **parameters},
        conditions=found["Conditions"],
        mappings=found["Mappings"],
        keep_references=True,
    )
    kept = {name: body for name, body in found["Resources"].items() if resolver.includes(body)}
    return {name: resolver.resolve(body) for name, body in kept.items()}


def is_open(cidrs: str, call: str, address: str) -> bool:
    """Evaluate the API's policy as IAM does: a statement that denies wins."""
    body = translated(cidrs)["Api"]["Properties"]["Body"]
    effects = set()
    for statement in body["x-amazon-apigateway-policy"]["Statement"]:
        assert (statement["Principal"], statement["Action"]) == ("*", "execute-api:Invoke")
        if not any(
            fnmatchcase(f"execute-api:/{STAGE}/{call}", each) for each in listed(statement["Resource"])
        ):
            continue
        condition = statement.get("Condition", {})
        assert set(condition) <= {"NotIpAddress"}
        ranges = condition.get("NotIpAddress", {}).get("aws:SourceIp", [])
        if not any(ip_address(address) in ip_network(each) for each in ranges):
            effects.add(statement["Effect"])
    return effects == {"Allow"}


@pytest.mark.shows("S6")
def test_without_ranges_no_address_reaches_the_route_of_results() -> None:
    for address in ("127.0.0.1", "10.0.0.1", "203.0.113.9"):
        assert not is_open("", COMPLETE, address)
        assert not is_open("", COMPLETE + "/", address)


@pytest.mark.shows("S6")
def test_with_ranges_only_their_addresses_reach_the_route_of_results() -> None:
    cidrs = "203.0.113.0/24,198.51.100.7/32"
    assert is_open(cidrs, COMPLETE, "203.0.113.9")
    assert is_open(cidrs, COMPLETE, "198.51.100.7")
    assert not is_open(cidrs, COMPLETE, "198.51.100.8")
    assert not is_open(cidrs, COMPLETE + "/", "198.51.100.8")


@pytest.mark.shows("S6")
@pytest.mark.parametrize("cidrs", ["", "203.0.113.0/24"])
def test_every_other_route_is_open_to_all_addresses(cidrs: str) -> None:
    paths = translated(cidrs)["Api"]["Properties"]["Body"]["paths"]
    calls = [f"{method.upper()}{path}" for path, methods in paths.items() for method in methods]
    closed = [each for each in calls if not is_open(cidrs, each, "192.0.2.1")]
    assert closed == ["POST/orchestrator/jobs/{job_id}/complete"]
    assert len(calls) >= 20


@pytest.mark.shows("S6")
@pytest.mark.parametrize("cidrs", ["any", "203.0.113.0", "203.0.113.0/24, 198.51.100.7/32", "0.0.0.0/0,"])
def test_what_is_no_range_is_refused(cidrs: str) -> None:
    with pytest.raises(ParameterError, match="InternalCidrs"):
        translated(cidrs)


@pytest.mark.shows("S6")
def test_a_new_value_reaches_the_stage() -> None:
    """A deployment of the API is a copy: it is made again in each deployment of the stack."""
    assert template()["Resources"]["Api"]["Properties"]["AlwaysDeploy"] is True


@pytest.mark.shows("S34")
def test_no_function_has_a_url() -> None:
    assert not [name for name, body in translated().items() if body["Type"] == "AWS::Lambda::Url"]


@pytest.mark.shows("S34")
def test_every_permission_to_invoke_names_its_source() -> None:
    """An ARN of an API or a rule has the account in it; without one, SourceAccount has to say it."""
    permissions = {
        name: body["Properties"]
        for name, body in translated().items()
        if body["Type"] == "AWS::Lambda::Permission"
    }
    assert len(permissions) > 10
    for name, given in permissions.items():
        assert given["Action"] == "lambda:InvokeFunction", name
        assert given["Principal"] != "*", name
        assert given.get("SourceArn"), name
        arn = json.dumps(given["SourceArn"])
        has_account = "Fn::GetAtt" in arn or "${AWS::AccountId}" in arn or ACCOUNT in arn
        assert has_account or given.get("SourceAccount"), name
