from __future__ import annotations

from collections.abc import Sequence

import pytest

from local.front.routing import Router, resource_id
from local.front.server import RestFront
from local.template.spec import RestApiSpec
from tests.integration.front.harness import ACCOUNT, REGION, Functions, ServeFront, request_bytes, route

ROUTES = (
    route("GET", "/"),
    route("GET", "/jobs"),
    route("POST", "/jobs"),
    route("GET", "/jobs/latest"),
    route("GET", "/jobs/{job_id}"),
    route("GET", "/jobs/{job_id}/errors"),
    route("GET", "/jobs/latest/pages"),
    route("GET", "/files/{path+}"),
    route("GET", "/files/{name}/meta"),
    route("ANY", "/hook"),
    route("PUT", "/hook", "Put"),
    route("GET", "/own/"),
    route("POST", "/own"),
)


@pytest.mark.parametrize(
    ("target", "resource", "parameters"),
    [
        ("/", "/", None),
        ("/jobs", "/jobs", None),
        ("/jobs/latest", "/jobs/latest", None),
        ("/jobs/7", "/jobs/{job_id}", {"job_id": "7"}),
        ("/jobs/latest/errors", "/jobs/{job_id}/errors", {"job_id": "latest"}),
        ("/jobs/latest/pages", "/jobs/latest/pages", None),
        ("/jobs/a%2Fb", "/jobs/{job_id}", {"job_id": "a%2Fb"}),
        ("/jobs/%6Catest", "/jobs/{job_id}", {"job_id": "%6Catest"}),
        ("/files/a/b/c.txt", "/files/{path+}", {"path": "a/b/c.txt"}),
        ("/files/a/meta", "/files/{name}/meta", {"name": "a"}),
        ("/files/a/other", "/files/{path+}", {"path": "a/other"}),
        ("/files/a", "/files/{path+}", {"path": "a"}),
    ],
)
async def test_literals_win_over_parameters_and_parameters_over_the_rest(
    serve: ServeFront, target: str, resource: str, parameters: dict[str, str] | None
) -> None:
    served = await serve(*ROUTES)
    answer = await served.raw(request_bytes(target))
    assert answer.status == 200
    event = answer.json()
    assert (event["resource"], event["pathParameters"]) == (resource, parameters)
    assert event["requestContext"]["resourcePath"] == resource
    assert event["requestContext"]["resourceId"] == resource_id(resource)


@pytest.mark.parametrize(
    ("target", "resource"), [("/jobs/", "/jobs"), ("/jobs/7/", "/jobs/{job_id}"), ("/own/", "/own/")]
)
async def test_a_trailing_slash_finds_the_resource_without_it_unless_it_has_its_own(
    serve: ServeFront, target: str, resource: str
) -> None:
    served = await serve(*ROUTES)
    event = (await served.raw(request_bytes(target))).json()
    assert (event["resource"], event["path"]) == (resource, target)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/nothing"),
        ("GET", "/jobs/7/8"),
        ("GET", "/jobs//"),
        ("GET", "//jobs"),
        ("GET", "/Jobs"),
        ("GET", "/files"),
        ("GET", "/files/"),
        ("DELETE", "/jobs"),
        ("HEAD", "/jobs"),
        ("OPTIONS", "/jobs"),
        ("GET", "/own"),
        ("POST", "/own/"),
    ],
)
async def test_an_unknown_path_or_method_is_a_missing_authentication_token(
    serve: ServeFront, method: str, target: str
) -> None:
    served = await serve(*ROUTES)
    answer = await served.raw(request_bytes(target, method=method))
    assert answer.status == 403
    assert ("x-amzn-errortype", "MissingAuthenticationTokenException") in answer.headers
    assert answer.body == (b"" if method == "HEAD" else b'{"message":"Missing Authentication Token"}')
    assert not served.functions.events


async def test_a_declared_method_wins_over_any(serve: ServeFront) -> None:
    served = await serve(*ROUTES, Put=lambda event: {"statusCode": 202})
    assert (await served.client.put("/hook")).status_code == 202
    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert (await served.client.request(method, "/hook")).json()["httpMethod"] == method
    assert served.functions.calls == {"Echo": 4, "Put": 1}


async def test_each_method_reaches_its_own_function(serve: ServeFront) -> None:
    served = await serve(
        route("GET", "/jobs", "Read"),
        route("POST", "/jobs", "Write"),
        Read=lambda event: {"statusCode": 200, "body": "read"},
        Write=lambda event: {"statusCode": 201, "body": "written"},
    )
    assert (await served.client.get("/jobs")).text == "read"
    assert (await served.client.post("/jobs")).text == "written"


async def test_the_stage_may_precede_the_path(serve: ServeFront) -> None:
    served = await serve(*ROUTES, route("GET", "/v1/own"))
    event = (await served.client.get("/v1/jobs/7")).json()
    assert (event["path"], event["requestContext"]["path"]) == ("/jobs/7", "/v1/jobs/7")


async def test_an_absolute_target_is_the_path_in_it(serve: ServeFront) -> None:
    served = await serve(*ROUTES)
    event = (await served.raw(request_bytes("http://api.example.test/jobs/7?a=1"))).json()
    assert (event["path"], event["queryStringParameters"]) == ("/jobs/7", {"a": "1"})


@pytest.mark.parametrize(
    "routes",
    [
        (("GET", "/a"), ("GET", "/a")),
        (("GET", "/a"), ("get", "/a")),
        (("ANY", "/a"), ("*", "/a")),
        (("GET", "/{a}"), ("GET", "/{b}/c")),
        (("GET", "/{a+}"), ("POST", "/{b+}")),
    ],
)
def test_what_the_gateway_would_refuse_to_deploy_is_refused(routes: Sequence[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match=r"twice|two parameter names"):
        Router([route(method, path) for method, path in routes])


def test_a_route_with_an_unknown_authorizer_is_refused() -> None:
    api = RestApiSpec("Api", "v1", (route("GET", "/", authorizer="Key"),), {}, {})
    with pytest.raises(ValueError, match="Key"):
        RestFront(api, Functions(), account_id=ACCOUNT, region=REGION)
