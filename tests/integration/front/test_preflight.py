"""Preflights of browsers: the template's mock integrations on a front, and their mapping template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from indexmill.platform.http.app import SECURITY_HEADERS
from local.front.mock import Mock
from local.front.server import RestFront
from local.template.intrinsics import TemplateError
from local.template.rest_api import read_api
from local.template.spec import MockSpec, RestApiSpec
from local.template.template import Template
from local.template.translation import translate
from tests.integration.front.harness import ACCOUNT, REGION, Functions
from tests.support.function_env import GIVEN
from tests.support.repository import ROOT

APP, ADMIN = "https://app.example.com", "https://admin.example.com:8443"


def api_with(origins: str) -> RestApiSpec:
    """Return the API of template.yaml with AllowedOrigins."""
    translated, parameters = translate(ROOT / "template.yaml", GIVEN, {"AllowedOrigins": origins}, REGION)
    template = Template(translated, parameters, folder=ROOT, region=REGION, account_id=ACCOUNT)
    names = template.stateful()["Resources"]
    found = template.cloud(
        {name: name for name in names}, {name: f"arn:aws:x:::{name}" for name in names}
    ).api
    assert found is not None
    return found


@pytest.fixture(scope="module")
def apis() -> Callable[[str], RestApiSpec]:
    """Return the API with the given origins, translated once for each."""
    known: dict[str, RestApiSpec] = {}

    def find(origins: str) -> RestApiSpec:
        if origins not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_DEFAULT_REGION", REGION)
                known[origins] = api_with(origins)
        return known[origins]

    return find


async def ask(api: RestApiSpec, method: str, path: str, **headers: str) -> httpx.Response:
    """Send one request to a front of `api`, with functions that it must not call."""
    functions = Functions({})
    front = RestFront(api, functions, account_id=ACCOUNT, region=REGION)
    url = await front.start()
    try:
        async with httpx.AsyncClient(base_url=url) as client:
            return await client.request(method, path, headers=headers)
    finally:
        await front.stop()
        assert functions.events == []


def preflight(api: RestApiSpec, path: str, origin: str, **more: str) -> Any:
    return ask(api, "OPTIONS", path, **{"Origin": origin, "Access-Control-Request-Method": "POST", **more})


@pytest.mark.shows("S12", "B22")
async def test_without_origins_a_preflight_is_an_unknown_path(apis: Callable[[str], RestApiSpec]) -> None:
    answer = await preflight(apis(""), "/orchestrator/jobs", APP)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.shows("S12")
@pytest.mark.parametrize("origin", [APP, ADMIN])
@pytest.mark.parametrize("name", ["Origin", "origin"])
async def test_a_page_of_an_allowed_origin_may_send(
    apis: Callable[[str], RestApiSpec], origin: str, name: str
) -> None:
    answer = await ask(apis(f"{APP},{ADMIN}"), "OPTIONS", "/orchestrator/jobs/5/cancel", **{name: origin})
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == origin
    assert answer.headers["Access-Control-Allow-Methods"] == "GET,POST"
    allowed = answer.headers["Access-Control-Allow-Headers"].lower().split(",")
    assert {"x-api-key", "content-type", "idempotency-key", "if-none-match", "x-request-id"} <= {*allowed}
    assert (answer.headers["Access-Control-Max-Age"], answer.headers["Vary"]) == ("600", "Origin")
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert {key: answer.headers[key] for key in SECURITY_HEADERS} == SECURITY_HEADERS


@pytest.mark.shows("S12")
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example.com",
        "https://app.example.com.evil.example",
        "https://app.example.co",
        "http://app.example.com",
        "https://app.example.com:444",
        "app.example.com",
        "null",
        "",
        ",",
        "*",
    ],
)
async def test_any_other_origin_may_not(apis: Callable[[str], RestApiSpec], origin: str) -> None:
    answer = await preflight(apis(f"{APP},{ADMIN}"), "/orchestrator/jobs", origin)
    assert answer.headers.get("Access-Control-Allow-Origin") is None


@pytest.mark.shows("S12")
async def test_a_page_of_this_machine_may_send_from_any_port(apis: Callable[[str], RestApiSpec]) -> None:
    api = apis("http://localhost:*")
    for origin, allowed in (
        ("http://localhost:5173", "http://localhost:5173"),
        ("http://localhost.evil.example:5173", None),
        ("https://localhost:5173", None),
        (APP, None),
    ):
        answer = await preflight(api, "/orchestrator/jobs", origin)
        assert answer.headers.get("Access-Control-Allow-Origin") == allowed
    refused = await ask(api, "GET", "/orchestrator/jobs", Origin="http://localhost:5173")
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, "*")


async def test_an_origin_in_the_query_helps_no_other_page(apis: Callable[[str], RestApiSpec]) -> None:
    """The query is looked at before headers, as on AWS; what is answered is not the asking page's origin."""
    answer = await preflight(apis(APP), f"/orchestrator/jobs?Origin={APP}", "https://evil.example.com")
    assert answer.headers["Access-Control-Allow-Origin"] == APP


async def test_every_path_has_a_preflight_without_an_authorizer(apis: Callable[[str], RestApiSpec]) -> None:
    asked = {route.path for route in apis(APP).routes if route.method != "OPTIONS"}
    preflights = [route for route in apis(APP).routes if route.method == "OPTIONS"]
    assert sorted(route.path for route in preflights) == sorted(asked)
    assert {route.authorizer for route in preflights} == {None}
    open_to_all = {route.path for route in apis("").routes if route.authorizer is None}
    assert {r.path for r in apis(APP).routes if r.authorizer is None and r.method != "OPTIONS"} == open_to_all
    assert not [route for route in apis("").routes if route.method == "OPTIONS"]


@pytest.mark.shows("S12", "S40")
@pytest.mark.parametrize(
    ("origins", "allowed"), [("", None), (APP, APP), (f"{APP},{ADMIN}", "*"), (f"{ADMIN},{APP}", "*")]
)
async def test_a_page_can_read_the_gateways_own_errors(
    apis: Callable[[str], RestApiSpec], origins: str, allowed: str | None
) -> None:
    for path, status in (("/orchestrator/jobs", 401), ("/nowhere", 404)):
        answer = await ask(apis(origins), "GET", path, Origin=APP)
        assert answer.status_code == status
        assert answer.headers.get("Access-Control-Allow-Origin") == allowed
        exposed = answer.headers.get("Access-Control-Expose-Headers")
        assert exposed == ("X-Request-Id,Retry-After" if allowed else None)


@pytest.mark.parametrize(
    "template",
    [
        "#foreach($x in $y)#end",
        "#if($x)#end",
        '#if("a" == "a")',
        '#set($x = $y.replaceAll("a$", "b"))',
        "#set($x = $context.identity.sourceIp)",
        "plain text",
    ],
)
def test_a_mapping_template_that_is_not_understood_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="mapping template"):
        Mock(MockSpec(200, {}, template))


@pytest.mark.parametrize(
    "change",
    [
        {"responses": {"default": {"statusCode": "204"}}},
        {"responses": {"default": {"statusCode": "200"}, "4..": {"statusCode": "400"}}},
        {
            "responses": {
                "default": {"statusCode": "200", "responseParameters": {"method.response.header.X": "'y'"}}
            }
        },
    ],
)
def test_a_mock_integration_that_api_gateway_would_not_import_is_refused(change: dict[str, Any]) -> None:
    integration = {
        "type": "mock",
        "requestTemplates": {"application/json": '{"statusCode": 200}'},
        "responses": {"default": {"statusCode": "200"}},
    }

    def read(**more: Any) -> RestApiSpec:
        operation = {
            "responses": {"200": {"description": ""}},
            "x-amazon-apigateway-integration": {**integration, **more},
        }
        return read_api("Api", {"paths": {"/a": {"options": operation}}}, [{"StageName": "v1"}], {})

    assert read().routes[0].mock == MockSpec(200, {})
    with pytest.raises(TemplateError):
        read(**change)
