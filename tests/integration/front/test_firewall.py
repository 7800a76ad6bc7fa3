"""The web ACL of stack/edge.yaml before a front: who is blocked, how, and what the access log says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import httpx
import pytest

from local.front.server import FrontOptions
from local.template.intrinsics import TemplateError
from local.template.spec import BodySizeRule, GatewayResponseSpec, RateRule, Throttle, WebAclSpec
from local.template.web_acl import read_web_acl
from tests.integration.front.harness import Clock, Served, ServeFront, key_authorizer, policy, route
from tests.support.function_env import template
from tests.support.repository import ROOT

EDGE = ROOT / "stack" / "edge.yaml"
PSEUDO = {"AWS::Region": "eu-west-1", "AWS::AccountId": "123456789012", "AWS::Partition": "aws"}
ROUTES = (
    route("GET", "/jobs", authorizer="Key"),
    route("POST", "/scraper/scrape", authorizer="Key"),
    route("POST", "/embedding/embed", authorizer="Key"),
)


def web_acl(**given: str) -> WebAclSpec:
    found = read_web_acl(
        EDGE, {"RestApiId": {"Ref": "Api"}, "ApiStage": {"Ref": "Api.Stage"}, **given}, PSEUDO
    )
    assert found is not None
    return found


@cache
def access_log_format() -> str:
    """Return the format of the template's stage."""
    return str(template()["Resources"]["Api"]["Properties"]["AccessLogSetting"]["Format"])


async def serve_guarded(serve: ServeFront, clock: Clock, acl: WebAclSpec, **rest: Any) -> Served:
    """Return a front behind `acl` whose authorizer knows no key but `good`."""

    def authorize(event: dict[str, Any]) -> dict[str, Any]:
        return policy("Allow" if event["headers"]["X-API-Key"] == "good" else "Deny")

    return await serve(
        *ROUTES,
        authorizers=[key_authorizer()],
        Authorize=authorize,
        options=FrontOptions(web_acl=acl, monotonic=clock),
        **rest,
    )


@pytest.mark.shows("S21")
async def test_what_one_address_sends_beyond_its_limit_is_blocked_before_the_authorizer(
    serve: ServeFront,
) -> None:
    clock = Clock()
    served = await serve_guarded(serve, clock, web_acl(RequestsPerAddress="10", WindowSeconds="120"))
    # Neither a route nor a key is needed to be counted.
    statuses = [(await served.client.get("/nowhere")).status_code for _ in range(5)]
    statuses += [(await served.client.get("/jobs")).status_code for _ in range(5)]
    assert statuses == [403] * 5 + [401] * 5
    blocked = await served.client.get("/jobs", headers={"X-API-Key": "good"})
    assert blocked.status_code == 429
    assert blocked.headers["Retry-After"] == "120"
    assert blocked.headers["X-Content-Type-Options"] == "nosniff"
    assert not [name for name in blocked.headers if name.startswith("x-ratelimit")]
    error = blocked.json()["error"]
    assert (error["code"], error["retry_after"], error["request_id"]) == ("waf_rate_limited", 120, "")
    assert not served.functions.events
    clock.now += 119
    assert (await served.client.get("/jobs")).status_code == 429
    clock.now += 1
    # The eleven of the first second have left the window; the one that was blocked a second ago counts.
    assert [(await served.client.get("/jobs")).status_code for _ in range(10)] == [401] * 9 + [429]


@pytest.mark.shows("S21", "B89")
async def test_a_forwarded_address_changes_no_limit(serve: ServeFront) -> None:
    served = await serve_guarded(serve, Clock(), web_acl(RequestsPerAddress="10"))
    statuses = [
        (await served.client.get("/jobs", headers={"X-Forwarded-For": f"203.0.113.{n}"})).status_code
        for n in range(11)
    ]
    assert statuses == [401] * 10 + [429]
    # Another address of this machine is another caller.
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx.AsyncClient(base_url=served.client.base_url, transport=transport) as other:
        assert (await other.get("/jobs")).status_code == 401


@pytest.mark.shows("S21")
async def test_a_key_is_limited_from_all_addresses_and_no_key_is_not_counted(serve: ServeFront) -> None:
    served = await serve_guarded(serve, Clock(), web_acl(RequestsPerKey="10"))
    assert [(await served.client.get("/jobs")).status_code for _ in range(15)] == [401] * 15
    good = {"X-API-Key": "good"}
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx.AsyncClient(base_url=served.client.base_url, transport=transport) as other:
        there = [(await other.get("/jobs", headers=good)).status_code for _ in range(5)]
        here = [(await served.client.get("/jobs", headers=good)).status_code for _ in range(6)]
        assert (there, here) == ([200] * 5, [200] * 5 + [429])
        assert (await other.get("/jobs", headers={"X-API-Key": "else"})).status_code == 403


@pytest.mark.shows("S21")
async def test_a_large_body_is_blocked_where_the_rule_says(serve: ServeFront) -> None:
    served = await serve_guarded(serve, Clock(), web_acl())
    good = {"X-API-Key": "good"}

    async def post(path: str, size: int) -> httpx.Response:
        return await served.client.post(path, content=b"x" * size, headers=good)

    blocked = await post("/scraper/scrape", 16385)
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (413, "payload_too_large")
    assert served.functions.calls["Echo"] == 0
    assert (await post("/scraper/scrape", 16384)).status_code == 200
    # What was read for the rule reaches the function.
    assert len(served.functions.last()["body"]) == 16384
    assert (await post("/embedding/embed", 16385)).status_code == 200


@pytest.mark.shows("S22", "R099")
async def test_the_access_log_tells_a_block_from_a_throttle_and_from_a_functions_429(
    serve: ServeFront,
) -> None:
    """The conditions of both saved queries and of both metric filters tell them apart."""
    lines: list[dict[str, Any]] = []
    clock = Clock()
    served = await serve(
        route("GET", "/jobs", "Quota"),
        route("GET", "/throttled"),
        Quota=lambda event: {"statusCode": 429, "body": "{}"},
        options=FrontOptions(
            web_acl=web_acl(RequestsPerAddress="10"),
            monotonic=clock,
            throttles=_nothing_for("GET /throttled"),
        ),
        access_log=lines.append,
        access_log_format=access_log_format(),
    )
    await served.client.get("/throttled")
    for _ in range(10):
        await served.client.get("/jobs")
    kinds = [(line["status"], line["limit_req_status"], line["waf"]) for line in lines]
    assert kinds == [
        ("429", "THROTTLED", "WAF_ALLOW"),
        *[("429", "-", "WAF_ALLOW")] * 9,
        ("429", "WAF_FILTERED", "WAF_BLOCK"),
    ]
    assert {line["web_acl"] for line in lines} == {
        "arn:aws:wafv2:eu-west-1:123456789012:regional/webacl/WebAcl/local"
    }
    of_functions = ("RefusedRequests", "SearchesWithoutHit")
    of_access = {name: where for name, where in _conditions().items() if name not in of_functions}
    found = {name: [_matches(where, line) for line in lines].count(True) for name, where in of_access.items()}
    refused = {"message": "request.refused", "code": "quota_exceeded"}
    assert found == {"RejectedRequests": 2, "GatewayThrottled": 1, "WafRateLimited": 1}
    assert _matches(_conditions()["RefusedRequests"], refused)
    assert {name: found[resource] * value for resource, (name, value) in _metrics().items()} == {
        "gateway_throttled_total": 1,
        "waf_rate_limited_total": 1,
    }


@pytest.mark.shows("R099")
def test_the_query_of_the_functions_429_reads_every_function_that_answers_callers() -> None:
    resources = template()["Resources"]
    query = resources["RefusedRequests"]["Properties"]
    answering = {
        body["Properties"]["LoggingConfig"]["LogGroup"]["Ref"]
        for body in resources.values()
        if body["Type"] == "AWS::Serverless::Function"
        and any(event["Type"] == "Api" for event in body["Properties"].get("Events", {}).values())
    }
    assert {each["Ref"] for each in query["LogGroupNames"]} == answering
    assert "by code, caller_id, resource" in query["QueryString"]


async def test_without_a_web_acl_the_variables_have_no_value(serve: ServeFront) -> None:
    lines: list[dict[str, Any]] = []
    served = await serve(route("GET", "/"), access_log=lines.append, access_log_format=access_log_format())
    await served.client.get("/")
    assert (lines[0]["waf"], lines[0]["web_acl"], lines[0]["limit_req_status"]) == ("-", "-", "-")


async def test_a_block_without_an_answer_of_its_own_is_a_gateway_response(serve: ServeFront) -> None:
    acl = web_acl()
    bare = replace(acl, rules=tuple(replace(each, response=None) for each in acl.rules))
    ours = GatewayResponseSpec("WAF_FILTERED", templates={"application/json": '{"blocked":true}'})
    served = await serve_guarded(serve, Clock(), bare, responses=[ours])
    answer = await served.client.post("/scraper/scrape", content=b"x" * 20000)
    assert (answer.status_code, answer.json()) == (403, {"blocked": True})


def test_the_rules_are_those_of_the_nested_stack() -> None:
    rules = {rule.name: rule for rule in web_acl(RequestsPerKey="77").rules}
    assert list(rules) == ["rate-by-address", "rate-by-key", "large-body"]
    address, key, body = rules.values()
    assert isinstance(address, RateRule)
    assert (address.limit, address.window_s, address.header) == (2000, 60, None)
    assert isinstance(key, RateRule)
    assert (key.limit, key.header) == (77, "x-api-key")
    assert isinstance(body, BodySizeRule)
    assert body.most_bytes == 16384


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DefaultAction: {Allow: {}}", "DefaultAction: {Block: {}}"),
        ("AggregateKeyType: IP\n", "AggregateKeyType: FORWARDED_IP\n"),
        ("ComparisonOperator: GT", "ComparisonOperator: LT"),
        ("FieldToMatch: {UriPath: {}}", "FieldToMatch: {Method: {}}"),
        ("AndStatement:", "OrStatement:"),
        ("Block:\n", "Allow:\n"),
    ],
)
def test_a_rule_that_cannot_be_enforced_is_refused(tmp_path: Any, old: str, new: str) -> None:
    changed = EDGE.read_text().replace(old, new, 1)
    assert changed != EDGE.read_text()
    file = tmp_path / "edge.yaml"
    file.write_text(changed)
    with pytest.raises(TemplateError):
        read_web_acl(file, {"RestApiId": "a", "ApiStage": "b"}, PSEUDO)


def test_a_nested_stack_without_a_web_acl_has_none() -> None:
    assert read_web_acl(ROOT / "stack" / "data.yaml", {}, PSEUDO) is None


def _nothing_for(method: str) -> dict[str, Any]:
    return {method: Throttle(rate=0, burst=0)}


def _conditions() -> dict[str, str]:
    """Return the conditions of the queries and the metric filters, each as the query language writes them."""
    resources = template()["Resources"]
    found = {}
    for name, body in resources.items():
        if body["Type"] == "AWS::Logs::QueryDefinition":
            found[name] = body["Properties"]["QueryString"].splitlines()[0].removeprefix("filter ")
        elif body["Type"] == "AWS::Logs::MetricFilter" and body["Properties"]["LogGroupName"] == {
            "Ref": "ApiLogs"
        }:
            pattern = body["Properties"]["FilterPattern"].strip("{} ")
            found[name] = pattern.replace("$.", "").replace("&&", "and").replace("||", "or")
    return found


def _metrics() -> dict[str, tuple[str, int]]:
    """Return name and value of the metric of each filter on the access log."""
    return {
        name: (made["MetricName"], int(made["MetricValue"]))
        for name, body in template()["Resources"].items()
        if body["Type"] == "AWS::Logs::MetricFilter"
        and body["Properties"]["LogGroupName"] == {"Ref": "ApiLogs"}
        for made in body["Properties"]["MetricTransformations"]
    }


def _matches(condition: str, line: dict[str, Any]) -> bool:
    """Return whether a line of the log fulfils a condition of comparisons, `and`, `or` and parentheses."""
    tokens = re.findall(r'\(|\)|and|or|[a-z_]+ !?= "[^"]*"', condition)
    assert "".join(tokens) == condition.replace(" and ", "and").replace(" or ", "or")

    def either() -> bool:
        value = both()
        while tokens and tokens[0] == "or":
            tokens.pop(0)
            value = both() or value
        return value

    def both() -> bool:
        value = one()
        while tokens and tokens[0] == "and":
            tokens.pop(0)
            value = one() and value
        return value

    def one() -> bool:
        token = tokens.pop(0)
        if token == "(":
            value = either()
            tokens.pop(0)
            return value
        name, operator, text = token.split(" ", 2)
        return (line[name] == json.loads(text)) is (operator == "=")

    return either()
