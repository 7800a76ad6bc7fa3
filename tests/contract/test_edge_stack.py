"""The nested stack before the API: limits by address and key, answers in our shape, a domain with TLS 1.2."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from indexmill.contracts.errors import HTTP_STATUS
from indexmill.platform.http.app import SECURITY_HEADERS
from local.template.intrinsics import Resolver
from tests.support.data_stack import edge_stack, of_type
from tests.support.function_env import template
from tests.support.refusals import BODIES, UNKNOWN_OBJECTS

WINDOW_S = "120"
MAY_BE_LARGE = {
    "/orchestrator/jobs",
    "/orchestrator/jobs/{job_id}/complete",
    "/chunking/chunk",
    "/chunking/enqueue",
    "/embedding/embed",
    "/embedding/enqueue",
    "/embedding/search",
}
"""Paths whose sound bodies can be of more than the 16 KiB that WAF looks at."""


def web_acl() -> dict[str, Any]:
    """Return the web ACL with its parameters resolved."""
    values = {name: str(body.get("Default", "")) for name, body in edge_stack()["Parameters"].items()}
    (found,) = of_type(edge_stack()["Resources"], "AWS::WAFv2::WebACL").values()
    resolver = Resolver({**values, "WindowSeconds": WINDOW_S}, conditions=edge_stack()["Conditions"])
    resolved: dict[str, Any] = resolver.resolve(found)
    return resolved


def rules() -> dict[str, dict[str, Any]]:
    return {each["Name"]: each for each in web_acl()["Rules"]}


@pytest.mark.shows("S21")
def test_requests_are_limited_by_address_and_then_by_key() -> None:
    """A request without the header is not counted by key, so the limit by address has to be there."""
    assert web_acl()["Scope"] == "REGIONAL"
    by_address = rules()["rate-by-address"]["Statement"]["RateBasedStatement"]
    by_key = rules()["rate-by-key"]["Statement"]["RateBasedStatement"]
    assert by_address["AggregateKeyType"] == "IP"
    assert by_key["AggregateKeyType"] == "CUSTOM_KEYS"
    assert [key["Header"]["Name"] for key in by_key["CustomKeys"]] == ["x-api-key"]
    for limit in (by_address, by_key):
        assert "ScopeDownStatement" not in limit
        assert int(limit["Limit"]) >= 10
        assert limit["EvaluationWindowSec"] == WINDOW_S
    assert [rule["Priority"] for rule in web_acl()["Rules"]] == [0, 1, 2, 3]
    assert list(rules())[:2] == ["rate-by-address", "rate-by-key"]


@pytest.mark.shows("S21")
def test_the_parameters_take_what_waf_takes() -> None:
    nested, own = edge_stack()["Parameters"], template()["Parameters"]
    for name in ("RequestsPerAddress", "RequestsPerKey"):
        assert nested[name]["MinValue"] == own[f"Edge{name}"]["MinValue"] == 10
        assert nested[name]["Default"] == own[f"Edge{name}"]["Default"]
    assert nested["WindowSeconds"] == own["EdgeWindowSeconds"]
    assert nested["WindowSeconds"]["AllowedValues"] == [60, 120, 300, 600]
    assert own["Edge"]["Default"] == "none"


@pytest.mark.shows("S21")
@pytest.mark.parametrize("name", ["rate-by-address", "rate-by-key", "large-body"])
def test_what_is_blocked_is_answered_in_our_shape(name: str) -> None:
    response = rules()[name]["Action"]["Block"]["CustomResponse"]
    body = web_acl()["CustomResponseBodies"][response["CustomResponseBodyKey"]]
    assert body["ContentType"] == "APPLICATION_JSON"
    error = json.loads(body["Content"])["error"]
    assert error.keys() - {"retry_after"} == {"code", "message", "request_id"}
    assert HTTP_STATUS[error["code"]] == response["ResponseCode"]
    headers = {each["Name"].lower(): each["Value"] for each in response["ResponseHeaders"]}
    assert str(error.get("retry_after", "")) == headers.pop("retry-after", "")
    assert headers.items() <= {name.lower(): value for name, value in SECURITY_HEADERS.items()}.items()
    if response["ResponseCode"] == 429:
        assert error["retry_after"] == int(WINDOW_S)


@pytest.mark.shows("S21")
def test_large_bodies_are_blocked_only_where_no_sound_one_is_large() -> None:
    path, size = rules()["large-body"]["Statement"]["AndStatement"]["Statements"]
    pattern = re.compile(path["RegexMatchStatement"]["RegexString"])
    assert size["SizeConstraintStatement"]["Size"] == 16384
    assert size["SizeConstraintStatement"]["FieldToMatch"] == {"Body": {"OversizeHandling": "MATCH"}}
    guarded = {each for each in BODIES if pattern.search("/dev" + each.format(**UNKNOWN_OBJECTS))}
    assert guarded == set(BODIES) - MAY_BE_LARGE


@pytest.mark.shows("S21")
def test_managed_rules_count_and_block_nothing() -> None:
    """Documents are about everything: what looks like an attack is someone's text."""
    common = rules()["common"]
    assert common["OverrideAction"] == {"Count": {}}
    assert "Action" not in common
    assert common["Statement"]["ManagedRuleGroupStatement"]["VendorName"] == "AWS"


@pytest.mark.shows("S21")
def test_the_stage_is_guarded_once_it_is_there() -> None:
    (association,) = of_type(edge_stack()["Resources"], "AWS::WAFv2::WebACLAssociation").values()
    assert association["ResourceArn"]["Fn::Sub"].endswith("::/restapis/${RestApiId}/stages/${ApiStage}")
    stack = template()["Resources"]["EdgeStack"]
    assert stack["Condition"] == "HasEdge"
    assert stack["Properties"]["TemplateURL"] == "stack/edge.yaml"
    given = stack["Properties"]["Parameters"]
    assert (given["RestApiId"], given["ApiStage"]) == ({"Ref": "Api"}, {"Ref": "Api.Stage"})
    assert given.keys() == edge_stack()["Parameters"].keys()


@pytest.mark.shows("S12", "S21")
def test_a_domain_takes_tls_1_2_and_needs_a_certificate() -> None:
    (domain,) = of_type(edge_stack()["Resources"], "AWS::ApiGateway::DomainName").values()
    assert domain["SecurityPolicy"] == "TLS_1_2"
    assert domain["RegionalCertificateArn"] == {"Ref": "CertificateArn"}
    assert edge_stack()["Rules"]["DomainAndCertificate"]["Assertions"]
