from __future__ import annotations

import pytest

from local.template.spec import GatewayResponseSpec
from tests.integration.front.harness import (
    KEY,
    ServeFront,
    error_result,
    key_authorizer,
    policy,
    request_bytes,
    route,
)

JSON = "application/json"
GUARDED = route("GET", "/jobs", authorizer="Key")
FAILING = route("GET", "/broken", "Broken")


def broken(event: object) -> object:
    return error_result("boom")


async def test_a_template_gets_its_variables(serve: ServeFront) -> None:
    body = (
        '{"code":"missing","id":"$context.requestId","path":"$context.path",'
        '"type":"$context.error.responseType","text":$context.error.messageString,"none":"$context.nothing"}'
    )
    spec = GatewayResponseSpec("MISSING_AUTHENTICATION_TOKEN", status=404, templates={JSON: body})
    served = await serve(route("GET", "/"), responses=[spec])
    answer = await served.client.get("/lost")
    assert answer.status_code == 404
    assert answer.json() == {
        "code": "missing",
        "id": answer.headers["x-amzn-RequestId"],
        "path": "/v1/lost",
        "type": "MISSING_AUTHENTICATION_TOKEN",
        "text": "Missing Authentication Token",
        "none": "",
    }


async def test_headers_are_added_and_replace_the_gateways_own(serve: ServeFront) -> None:
    headers = {
        "WWW-Authenticate": "ApiKey",
        "Access-Control-Allow-Origin": "*",
        "content-type": "application/problem+json",
    }
    spec = GatewayResponseSpec("UNAUTHORIZED", headers=headers)
    served = await serve(GUARDED, authorizers=[key_authorizer()], responses=[spec])
    answer = await served.client.get("/jobs")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "ApiKey"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers.get_list("Content-Type") == ["application/problem+json"]
    assert answer.headers["x-amzn-ErrorType"] == "UnauthorizedException"
    assert answer.json() == {"message": "Unauthorized"}


async def test_what_has_no_response_of_its_own_takes_the_default_of_its_family(serve: ServeFront) -> None:
    template = '{"family":"%s","type":"$context.error.responseType"}'
    served = await serve(
        GUARDED,
        FAILING,
        authorizers=[key_authorizer()],
        responses=[
            GatewayResponseSpec("DEFAULT_4XX", templates={JSON: template % "4"}),
            GatewayResponseSpec("DEFAULT_5XX", templates={JSON: template % "5"}),
            GatewayResponseSpec("ACCESS_DENIED", templates={JSON: '{"own":true}'}),
        ],
        Authorize=lambda event: policy("Deny"),
        Broken=broken,
    )
    lost = await served.client.get("/lost")
    assert (lost.status_code, lost.json()) == (403, {"family": "4", "type": "MISSING_AUTHENTICATION_TOKEN"})
    unknown = await served.client.get("/jobs")
    assert (unknown.status_code, unknown.json()) == (401, {"family": "4", "type": "UNAUTHORIZED"})
    denied = await served.client.get("/jobs", headers={"X-API-Key": KEY})
    assert (denied.status_code, denied.json()) == (403, {"own": True})
    failed = await served.client.get("/broken")
    assert (failed.status_code, failed.json()) == (502, {"family": "5", "type": "DEFAULT_5XX"})


async def test_an_authorizer_failure_falls_back_to_the_5xx_default(serve: ServeFront) -> None:
    served = await serve(
        GUARDED,
        authorizers=[key_authorizer()],
        responses=[
            GatewayResponseSpec("DEFAULT_5XX", status=503, templates={JSON: '{"message":"later"}'}),
            GatewayResponseSpec("DEFAULT_4XX", templates={JSON: '{"message":"no"}'}),
        ],
        Authorize=broken,
    )
    answer = await served.client.get("/jobs", headers={"X-API-Key": KEY})
    assert (answer.status_code, answer.json()) == (503, {"message": "later"})


@pytest.mark.parametrize(
    ("accept", "content_type", "body"),
    [
        ("text/plain", "text/plain", "Missing Authentication Token"),
        ("text/html, text/plain;q=0.5", "text/plain", "Missing Authentication Token"),
        ("application/json", JSON, '{"m":"Missing Authentication Token"}'),
        ("image/png", JSON, '{"m":"Missing Authentication Token"}'),
        ("*/*", JSON, '{"m":"Missing Authentication Token"}'),
    ],
)
async def test_the_client_chooses_among_the_templates(
    serve: ServeFront, accept: str, content_type: str, body: str
) -> None:
    templates = {"text/plain": "$context.error.message", JSON: '{"m":"$context.error.message"}'}
    spec = GatewayResponseSpec("MISSING_AUTHENTICATION_TOKEN", templates=templates)
    served = await serve(route("GET", "/"), responses=[spec])
    answer = await served.client.get("/lost", headers={"Accept": accept})
    assert (answer.headers["Content-Type"], answer.text) == (content_type, body)


async def test_broken_http_gets_the_gateways_answer_too(serve: ServeFront) -> None:
    spec = GatewayResponseSpec("DEFAULT_4XX", templates={JSON: '{"code":"bad"}'})
    served = await serve(route("GET", "/"), responses=[spec])
    answer = await served.raw(request_bytes("/", "Content-Length: many"))
    assert (answer.status, answer.json()) == (400, {"code": "bad"})
    assert "x-amzn-requestid" in dict(answer.headers)
